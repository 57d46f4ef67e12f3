/* Entries and the compiled callable; the frame hook runs entries too. */
#ifndef TW_DISPATCH_H
#define TW_DISPATCH_H
#include "guard.h"
#include "state.h"

typedef struct {
    PyObject_HEAD
    GuardProgram *guards;
    PyObject *graph, *finish, *kept; /* graph and finish: NULL where there is none */
    PyObject *failed;                /* told of a RegionFailed that the function itself did not share; NULL: nobody is */
    TorchState state;
    int single_output;
    int hooked;                      /* > 0: the frame hook is on, in that region, while `finish` or the original function runs; < 0: it is off */
    int below;                       /* on a code object: the region whose frames it answers */
    long hits;
} Entry;

extern PyTypeObject tw_entry_type;

int tw_dispatch_init(PyObject *module);

static inline int tw_runs_eager(const Entry *entry) { return !entry->graph && !entry->finish; }
/* 1 where the entry is for this state and its guards hold; `inputs` then has tw_guards_inputs() new references */
int tw_entry_matches(Entry *entry, const TorchState *state, PyObject *function, PyObject *const *locals, Py_ssize_t nlocals, PyObject **inputs);
/* Runs the graph and `finish`; gives up the references in `inputs`. NULL with an exception, RegionFailed among them. */
PyObject *tw_run_entry(Entry *entry, PyObject *function, PyObject *const *locals, Py_ssize_t nlocals, PyObject **inputs);

/* Tells entry->failed, where there is one, of a region that gave up though the function itself did not fail. */
void tw_tell_failed(Entry *entry, PyObject *error);

/* hook.c */
int tw_hook_init(PyObject *module);
int tw_hook_enter(int region);   /* gives what tw_hook_exit takes */
void tw_hook_exit(int region_before);
int tw_hook_pause(void);         /* hook off in this thread; gives what tw_hook_resume takes */
void tw_hook_resume(int depth);
/* Calls a function whose compiled form leaves this call to it: its own frame is not taken over, those below are in the region `hooked`;
   0: as around the call; < 0: not either. */
PyObject *tw_hook_call(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames, int hooked);
#define TW_HOOK_OFF (-1)
#endif
