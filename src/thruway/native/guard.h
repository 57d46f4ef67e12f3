/* Guard programs: loads put values into registers, checks look at registers. See guard.c for how a call is checked. */
#ifndef TW_GUARD_H
#define TW_GUARD_H
#include "core.h"
#include "tensor.h"
#include <stddef.h>

/* The order is that of step_names in guard.c. */
typedef enum {
    LOAD_LOCAL, LOAD_FUNCTION, LOAD_CONST, LOAD_CELL, LOAD_GLOBALS, LOAD_BUILTINS, LOAD_ATTR, LOAD_DICT_ATTR, LOAD_ITEM, LOAD_DICT_KEY, LOAD_TYPE,
    LOAD_CLOSURE, LOAD_DEFAULT, LOAD_KWDEFAULT, LOAD_WEAK, LOAD_METHOD_SELF, LOAD_METHOD_FUNCTION, LOAD_FUNCTION_GLOBALS, LOAD_GETATTR,
    LOAD_VIEWED, LOAD_CALL,
    CHECK_TYPE, CHECK_IS, CHECK_IS_WEAK, CHECK_EQUAL, CHECK_LENGTH, CHECK_DICT_KEYS, CHECK_HAS_NOT, CHECK_ABSENT, CHECK_CODE, CHECK_SAME,
    CHECK_NOT_SAME, CHECK_NO_OVERLAP, CHECK_TRUTH, CHECK_TYPE_LOOKUP, CHECK_ORDERED_KEYS, CHECK_PYTHON, CHECK_SIZE, CHECK_TENSOR, CHECK_RELATION,
    STEP_CODES
} StepCode;
#define FIRST_CHECK CHECK_TYPE

/* How a value was found, which says how long the answer lasts. */
typedef enum {
    HELD,    /* borrowed: lives in a dict, type or tuple that is unchanged while its version tag is */
    METHOD,  /* new reference: a method bound to the base; the same again while the tags hold */
    FRESH,   /* new reference made by a descriptor or by user code: must be asked for again (NULL: it raised) */
    MISSING, /* no such attribute, for sure while the tags hold */
} Found;

enum { DIM_EXACT, DIM_ANY, DIM_BIND, DIM_SAME };
typedef struct { int kind; int64_t value; } Dim; /* value: the size, or the symbol's number */

typedef struct {
    PyTypeObject *type;
    uint64_t keys;
    int32_t dtype, device;
    int requires_grad, exact; /* exact: every dim is DIM_EXACT, so numbers can be compared as memory */
    int64_t ndim;
    Dim *dims;                /* sizes, then strides */
    int64_t numbers[];        /* the same where exact, beside the rest in memory */
} TensorSpec;

typedef struct { int operator; Py_ssize_t left, right; int64_t *words; } Relation; /* two postfix programs after each other */

typedef struct {
    StepCode code;
    int out, a, b;       /* result register; operand registers or plain numbers */
    int guard;           /* which guard fails with this step */
    int node;            /* index of the node of register `a`, or -1 */
    PyObject *arg;
    TensorSpec *tensor;
    Relation *relation;
} Step;

/* What the loads through one register rely on: its type and dicts, by identity and version tag. Pointers are borrowed and
   only followed after they were reached from a live object again. */
typedef struct {
    PyTypeObject *type, *as_type;
    unsigned type_tag, as_tag;
    ptrdiff_t dict_at;       /* where the instance dict hangs, from the object; 0: nowhere */
    PyObject *dict, *subs[3], *items;
    uint64_t dict_tag, sub_tags[3], items_tag;
    char opened, usable, has_subs;
} Node;

typedef struct { PyObject *function; PyObject *const *locals; Py_ssize_t nlocals; int64_t *symbols; } Call;

/* lookup.c */
int tw_lookup_init(PyObject *module);
void tw_open_node(Node *node, PyObject *base, int items);
int tw_node_holds(const Node *node, PyObject *base);
PyObject *tw_attribute(PyObject *base, PyObject *name, Found *found);
PyObject **tw_dict_slot(PyObject *base);

/* loads.c */
static inline int tw_is_root(StepCode code) { return code <= LOAD_BUILTINS; }
PyObject *tw_load(const Step *step, const Call *call, PyObject *const *registers, Found *found);

/* checks.c */
TensorSpec *tw_parse_tensor(PyObject *arg, int symbols);
void tw_free_tensor(TensorSpec *spec);
Relation *tw_parse_relation(PyObject *arg, int symbols);
int tw_run_check(const Step *step, PyObject *const *registers, int64_t *symbols);

/* guard.c */
typedef struct GuardProgram GuardProgram;
extern PyTypeObject tw_guards_type;
int tw_guard_init(PyObject *module);
Py_ssize_t tw_guards_inputs(const GuardProgram *program);
/* 1: all guards hold and `inputs` has new references; 0: some guard fails. Leaves no exception. */
int tw_guards_check(GuardProgram *program, PyObject *function, PyObject *const *locals, Py_ssize_t nlocals, PyObject **inputs);
#endif
