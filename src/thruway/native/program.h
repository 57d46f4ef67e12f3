/* A Program is one launch list whose sizes are numbers, flattened by Python (runtime/cpu/flatten.py) and run by C. A step is a
   row below, a slot is an index into a Frame.

   A Frame holds what one running call needs: addresses and tensor objects per slot. Those of arena, constants and derived
   values are filled once, when `make_frame` (Python) builds the frame; frames wait in a pool, so threads and re-entry are normal.

   An Arena is memory for intermediates, shared by the frames of all programs: one call at a time is in it. */
#ifndef TW_PROGRAM_H
#define TW_PROGRAM_H
#include "core.h"
#include "tensor.h"

#define TW_KEYS_SYMBOL "_ZN3c104impl26raw_local_dispatch_key_setE" /* a thread's own dispatch keys */

enum { KERNEL, FRESH, VIEW, CALL, SHIM, DROP, LAUNCH };
enum { CONSTANT, SLOT, LIST };

typedef int (*KernelFunction)(void **pointers, const long long *sizes);
typedef int (*LaunchFunction)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared, void *stream, void **, void **); /* cuLaunchKernel */
typedef ShimError (*StreamFunction)(int32_t device, void **stream);
typedef int (*ContextFunction)(void *);

typedef struct Numbers { Py_ssize_t count; int64_t *at; } Numbers;

typedef struct { Numbers sizes, strides; int dtype, device; } Layout;

typedef struct Argument { int kind; Py_ssize_t slot; PyObject *constant; Py_ssize_t count; struct Argument *items; } Argument;

typedef struct { KernelFunction function; PyObject *name; Numbers slots, sizes, bumps; int releases, writes; } KernelStep;
typedef struct { Py_ssize_t slot; Layout layout; } FreshStep;
typedef struct { Py_ssize_t slot, base, bytes, elements; int object, leaves; Layout layout; PyObject *sizes, *strides; } ViewStep;
typedef struct { PyObject *callable, *keywords; Py_ssize_t count; Argument *arguments; Numbers outs; Layout *expected; int writes; } CallStep;
typedef struct { void *function; Numbers slots; double scalars[2]; int releases; } ShimStep;
/* what a launch calls: torch's current stream of a device, and the driver's cuCtxGetCurrent, cuCtxPushCurrent, cuCtxPopCurrent, cuLaunchKernel */
typedef struct { StreamFunction stream; ContextFunction current, push, pop; LaunchFunction launch; } Cuda;
typedef struct {
    Cuda cuda; void *context, *function; PyObject *name;
    unsigned programs, threads, shared; int device, writes; Numbers slots, words, bumps;
} LaunchStep;

typedef struct {
    int kind;
    union { KernelStep kernel; FreshStep fresh; ViewStep view; CallStep call; ShimStep shim; Numbers drop; LaunchStep launch; };
} Step;

typedef struct Program Program;
typedef struct Frame Frame;

typedef struct Arena {
    struct Arena *next;
    PyObject *tensor;
    int64_t bytes;
    int busy;                       /* a call is in it */
    Frame *frames;                  /* all that were built on it; none is running unless busy */
} Arena;

struct Frame {
    Frame *next, *next_on_arena;
    Program *program;
    Arena *arena;                   /* NULL where the program needs none */
    PyObject *derived;              /* the derived values it was made from, or NULL */
    void **address, **pointers;     /* per slot; scratch for one kernel's pointers */
    PyObject **object;              /* per slot: inputs are borrowed, all others owned */
};

typedef struct Block { struct Block *next; } Block;

struct Program {
    PyObject_HEAD
    Py_ssize_t slots, inputs, count, most_pointers;
    int64_t arena_bytes;
    Numbers outputs, read_inputs, per_call;
    Step *steps;
    int calls_torch;                /* grad mode and autocast go off around the steps */
    PyObject *make_frame, *references;
    Block *blocks;
    Frame *pool;
    int pooled;
};

extern PyTypeObject tw_program_type;
extern PyObject *tw_as_strided, *tw_bump_version, *tw_make_arena; /* NULL until bind_launch */
extern uint64_t tw_autocast_keys;                /* bits that autocast sets in the thread's excluded keys */

Arena *tw_idle_arena(int64_t bytes);            /* at least so large, not busy; NULL with an exception */
void tw_leave_arena(Frame *f);                  /* the arena goes with its last frame */
void tw_free_frame(Frame *f);                   /* one that is in no pool */
Frame *tw_lease(Program *p, PyObject *derived); /* NULL with an exception */
void tw_give_back(Program *p, Frame *f);
PyObject *tw_run_program(Program *p, PyObject *const *inputs, PyObject *derived); /* tuple of outputs; derived may be NULL */
void tw_fail_region(int wrote);                  /* the error that is set becomes RegionFailed, unless an input was written */
int tw_is_binding_ready(void);                  /* else an exception is set */
#endif
