/* The guard program: an immutable list of steps, and the armed state that makes a repeated check cheap.

   A full pass runs every step with owned references. When it succeeds it leaves an armed state: which registers are
   *stable* (their value hangs in dicts and types whose version tags are noted in nodes), and the short list of steps that
   must run again each time. A fast pass walks that list from the arguments outwards. A node that still holds proves that
   everything loaded through it is the same and alive, so its values need no references; no user code runs meanwhile.
   A node that does not hold says nothing about the guards: then the full pass decides, and arms anew. A register whose
   nodes keep changing is loaded each time instead. */
#include "guard.h"
#include <alloca.h>
#include <string.h>

#define STACK_REGISTERS 1024
#define UNSTABLE_MISSES 3   /* node changes after which loads through a register are done each time */
#define SETTLED_HITS 16     /* as many hits in between forgive a change */

enum { VOLATILE, STABLE, BOUND, SLOW }; /* status of a register; BOUND: a stable bound method that is not made */

typedef struct { int node, index, reg; } Fast; /* node >= 0: check that node on `reg`; else run step `index` */

typedef struct {
    int references, fast_count, slow_count, empty_count;
    PyDictObject **empty;  /* stable dicts that must be empty: looked at last, in one loop, when their owners are seen to hold */
    int *slow;             /* steps that make new objects or run user code: after the fast ones */
    Fast *fast;
    Node *nodes;
    PyObject **values;     /* per register: borrowed, set where stable */
    unsigned char *status; /* per register */
    unsigned char *found;  /* per step, how a load found its value */
    long hits;
} Armed;

struct GuardProgram {
    PyObject_HEAD
    int step_count, registers, nodes, symbols, input_count, cleared;
    Step *steps;
    int *inputs;
    int *makers;              /* per register: the step that loads it */
    unsigned char *plain_use; /* per register: used otherwise than as a bound method taken apart */
    unsigned char *misses;    /* per node */
    Armed *armed;
    long fast_hits, full_passes;
};

static const char *step_names[STEP_CODES] = {
    "local", "function", "const", "cell", "globals", "builtins", "attr", "dict_attr", "item", "dict_key", "type",
    "closure", "default", "kwdefault", "weak", "method_self", "method_function", "function_globals", "getattr", "viewed", "call",
    "is_type", "is", "is_weak", "equal", "length", "dict_keys", "has_not", "absent", "code", "same",
    "not_same", "no_overlap", "truth", "type_lookup", "ordered_keys", "python", "size", "tensor", "relation",
};

static int is_check(StepCode code) { return code >= FIRST_CHECK; }
static int uses_a(const Step *step) { return !tw_is_root(step->code); }
static int uses_b(const Step *step) { return step->code == CHECK_SAME || step->code == CHECK_NOT_SAME || step->code == CHECK_NO_OVERLAP; }
static int reads_attributes(StepCode code) { return code == LOAD_ATTR || code == LOAD_DICT_ATTR || code == CHECK_HAS_NOT || code == CHECK_TYPE_LOOKUP; }
static int reads_items(StepCode code) { return code == LOAD_ITEM || code == LOAD_DICT_KEY || code == CHECK_DICT_KEYS || code == CHECK_ABSENT; }

static int lacks_attribute(const Step *step, PyObject *const *registers, Found *found)
{
    PyObject *value = tw_attribute(registers[step->a], step->arg, found);
    if (value && *found != HELD)
        Py_DECREF(value);
    return value == NULL;
}

/* ---- the armed state */

static void drop_armed(Armed *armed)
{
    if (armed && --armed->references == 0)
        PyMem_Free(armed);
}

static size_t padded(size_t bytes) { return (bytes + 15) & ~(size_t)15; }

/* One block; everything zero. */
static Armed *new_armed(const GuardProgram *p)
{
    size_t steps = (size_t)p->step_count, registers = (size_t)p->registers, nodes = (size_t)p->nodes;
    size_t sizes[] = {sizeof(Armed), nodes * sizeof(Node), registers * sizeof(PyObject *), (steps + nodes) * sizeof(Fast), steps * sizeof(int), registers, steps,
                      steps * sizeof(PyDictObject *)};
    size_t total = 0;
    for (int i = 0; i < 8; i++)
        total += padded(sizes[i]);
    char *at = PyMem_Calloc(1, total);
    if (!at)
        return NULL;
    Armed *armed = (Armed *)at;
    armed->references = 1;
    armed->nodes = (Node *)(at += padded(sizes[0]));
    armed->values = (PyObject **)(at += padded(sizes[1]));
    armed->fast = (Fast *)(at += padded(sizes[2]));
    armed->slow = (int *)(at += padded(sizes[3]));
    armed->status = (unsigned char *)(at += padded(sizes[4]));
    armed->found = (unsigned char *)(at += padded(sizes[5]));
    armed->empty = (PyDictObject **)(at + padded(sizes[6]));
    return armed;
}

/* Whether what this step reads through `a` is vouched for by a node. */
static int is_settled(const GuardProgram *p, const Armed *armed, const Step *step)
{
    const Node *node = step->node < 0 ? NULL : &armed->nodes[step->node];
    return node && node->opened && node->usable && p->misses[step->node] < UNSTABLE_MISSES;
}

/* Whether a node that is checked anyway proves that the type of register `a` is `type`. */
static int vouches_for_type(const GuardProgram *p, const Armed *armed, const Step *step, PyObject *type)
{
    return is_settled(p, armed, step) && (PyObject *)armed->nodes[step->node].type == type;
}

static int is_immutable(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    return value == Py_None || type == &PyLong_Type || type == &PyBool_Type || type == &PyFloat_Type || type == &PyUnicode_Type
        || type == &PyBytes_Type || type == &PyComplex_Type;
}

static int status_of_load(const GuardProgram *p, const Armed *armed, int index)
{
    const Step *step = &p->steps[index];
    Found found = armed->found[index];
    if (tw_is_root(step->code))
        return step->code == LOAD_CONST ? STABLE : VOLATILE;
    int base = armed->status[step->a];
    if (base == SLOW || found == FRESH)
        return SLOW;
    if (reads_attributes(step->code) && found == METHOD)
        return is_settled(p, armed, step) && !p->plain_use[step->out] ? BOUND : SLOW;
    if (step->code == LOAD_TYPE)
        return vouches_for_type(p, armed, step, armed->values[step->out]) ? STABLE : VOLATILE;
    if (step->node >= 0 && is_settled(p, armed, step))
        return STABLE;
    PyObject *value = armed->values[step->a];
    switch (step->code) {
    case LOAD_ITEM: return base == STABLE && PyTuple_Check(value) ? STABLE : VOLATILE;
    case LOAD_METHOD_SELF:
    case LOAD_METHOD_FUNCTION: return base == BOUND || base == STABLE ? STABLE : VOLATILE;
    case LOAD_FUNCTION_GLOBALS: return base == STABLE ? STABLE : VOLATILE;
    default: return VOLATILE;
    }
}

/* Whether a check that held must hold again while its registers are stable. */
static int is_lasting(const GuardProgram *p, const Armed *armed, const Step *step)
{
    if (step->code == CHECK_TENSOR || step->code == CHECK_SIZE || step->code == CHECK_RELATION || step->code == CHECK_PYTHON)
        return 0;
    if (step->code == CHECK_HAS_NOT || step->code == CHECK_ABSENT || step->code == CHECK_DICT_KEYS || step->code == CHECK_TYPE_LOOKUP)
        return is_settled(p, armed, step);
    if (step->code == CHECK_TYPE && vouches_for_type(p, armed, step, step->arg))
        return 1;
    if (armed->status[step->a] == BOUND)
        return 1;
    if (armed->status[step->a] != STABLE)
        return 0;
    PyObject *value = armed->values[step->a];
    switch (step->code) {
    case CHECK_TYPE: return !(Py_TYPE(value)->tp_flags & Py_TPFLAGS_HEAPTYPE) && !PyModule_Check(value);
    case CHECK_IS:
    case CHECK_IS_WEAK: return 1;
    case CHECK_EQUAL:
    case CHECK_TRUTH: return is_immutable(value);
    case CHECK_LENGTH: return is_immutable(value) || PyTuple_Check(value);
    case CHECK_SAME:
    case CHECK_NOT_SAME: return armed->status[step->b] == STABLE;
    default: return 0;
    }
}

static int is_slow_check(const Armed *armed, int index, const Step *step)
{
    if (step->code == CHECK_PYTHON || (uses_a(step) && armed->status[step->a] == SLOW) || (uses_b(step) && armed->status[step->b] == SLOW))
        return 1;
    return step->code == CHECK_HAS_NOT && armed->found[index] == FRESH;
}

/* Whether the node of the object that holds this dict compares the dict's tag already. */
static int is_covered(const GuardProgram *p, const Armed *armed, const Node *node, int reg)
{
    const Step *maker = &p->steps[p->makers[reg]];
    if (node->type || !reads_attributes(maker->code) || !is_settled(p, armed, maker))
        return 0;
    const Node *owner = &armed->nodes[maker->node];
    return node->items == owner->dict || (owner->has_subs && (node->items == owner->subs[0] || node->items == owner->subs[1] || node->items == owner->subs[2]));
}

static void add_fast(Armed *armed, int node, int index, int reg) { armed->fast[armed->fast_count++] = (Fast){node, index, reg}; }

static int wants_stable_empty_dict(const Armed *armed, const Step *step)
{
    PyObject *value = armed->status[step->a] == STABLE ? armed->values[step->a] : NULL;
    return step->code == CHECK_TRUTH && !step->b && value && (PyDict_CheckExact(value) || PyODict_CheckExact(value));
}

/* Decides for each step of a pass that held whether it runs again, and in which phase. `registers` are the pass's values.
   0 where a slow step binds a size symbol, which steps of the fast list may need: such a program takes the full pass. */
static int arm(const GuardProgram *p, Armed *armed, PyObject *const *registers)
{
    memcpy(armed->values, registers, sizeof(PyObject *) * (size_t)p->registers);
    for (int i = 0; i < p->step_count; i++) {
        const Step *step = &p->steps[i];
        int slow, lasting;
        if (is_check(step->code)) {
            slow = is_slow_check(armed, i, step);
            lasting = !slow && is_lasting(p, armed, step);
        } else {
            int status = armed->status[step->out] = (unsigned char)status_of_load(p, armed, i);
            slow = status == SLOW;
            lasting = status == STABLE || status == BOUND;
        }
        if (slow && (step->code == CHECK_SIZE || (step->tensor && !step->tensor->exact)))
            return 0;
        if (slow)
            armed->slow[armed->slow_count++] = i;
        else if (is_check(step->code) && uses_a(step) && wants_stable_empty_dict(armed, step))
            armed->empty[armed->empty_count++] = (PyDictObject *)armed->values[step->a];
        else if (!lasting)
            add_fast(armed, -1, i, 0);
        else if (step->node >= 0 && is_settled(p, armed, step) && armed->nodes[step->node].opened == 1) {
            armed->nodes[step->node].opened = 2;
            if (!is_covered(p, armed, &armed->nodes[step->node], step->a))
                add_fast(armed, step->node, i, step->a);
        }
    }
    for (int i = 0; i < p->registers; i++)
        if (armed->status[i] != STABLE)
            armed->values[i] = NULL;
    return 1;
}

/* ---- passes */

/* Runs step `index` with owned references. 0 where it fails. */
static int run_owned(const GuardProgram *p, int index, const Call *call, PyObject **registers, Armed *draft)
{
    const Step *step = &p->steps[index];
    Found found = HELD;
    if (draft && step->node >= 0 && (reads_items(step->code) || reads_attributes(step->code)))
        tw_open_node(&draft->nodes[step->node], registers[step->a], reads_items(step->code));
    if (is_check(step->code)) {
        int holds = step->code == CHECK_HAS_NOT ? lacks_attribute(step, registers, &found) : tw_run_check(step, registers, call->symbols);
        if (draft)
            draft->found[index] = found;
        return holds;
    }
    PyObject *value = tw_load(step, call, registers, &found);
    if (!value)
        return 0;
    if (draft)
        draft->found[index] = found;
    registers[step->out] = found == HELD ? Py_NewRef(value) : value;
    return 1;
}

static void clear_registers(PyObject **registers, int count)
{
    for (int i = 0; i < count; i++)
        Py_XDECREF(registers[i]);
}

/* The index of the first step that fails, or -1. `registers` come in zero and hold references afterwards. */
static int full_pass(GuardProgram *p, const Call *call, PyObject **registers, Armed *draft)
{
    p->full_passes++;
    for (int i = 0; i < p->step_count; i++)
        if (!run_owned(p, i, call, registers, draft))
            return i;
    return -1;
}

static void collect(const GuardProgram *p, PyObject *const *registers, PyObject **inputs)
{
    for (int i = 0; i < p->input_count; i++)
        inputs[i] = Py_NewRef(registers[p->inputs[i]]);
}

static int check_fully(GuardProgram *p, const Call *call, PyObject **registers, PyObject **inputs)
{
    Armed *draft = new_armed(p);
    memset(registers, 0, sizeof(PyObject *) * (size_t)p->registers);
    int holds = full_pass(p, call, registers, draft) < 0;
    if (holds) {
        collect(p, registers, inputs);
        if (draft && arm(p, draft, registers)) {
            drop_armed(p->armed);
            p->armed = draft;
            draft = NULL;
        }
    }
    drop_armed(draft);
    clear_registers(registers, p->registers);
    return holds;
}

enum { MISS, HIT, STALE };

static void note_stale(GuardProgram *p, const Armed *armed, int node)
{
    if (armed->hits >= SETTLED_HITS)
        p->misses[node] = 0;
    else if (p->misses[node] < UNSTABLE_MISSES)
        p->misses[node]++;
}

/* One load or check of the fast list. A load that finds its value otherwise than before may have run user code: nothing is sure then. */
static inline int run_borrowed(const Step *step, const Call *call, PyObject **registers)
{
    Found found = HELD;
    if (step->code == CHECK_HAS_NOT) {
        int holds = lacks_attribute(step, registers, &found);
        return found == FRESH || found == METHOD ? STALE : holds ? HIT : MISS;
    }
    if (is_check(step->code))
        return tw_run_check(step, registers, call->symbols) ? HIT : MISS;
    PyObject *value = tw_load(step, call, registers, &found);
    if (UNLIKELY(found != HELD)) {
        Py_XDECREF(value);
        return STALE;
    }
    registers[step->out] = value;
    return value ? HIT : MISS;
}

/* Borrowed references only; runs no user code, so nothing it looks at can die meanwhile. */
static int fast_pass(GuardProgram *p, Armed *armed, const Call *call, PyObject **registers)
{
    memcpy(registers, armed->values, sizeof(PyObject *) * (size_t)p->registers);
    for (const Fast *fast = armed->fast, *end = fast + armed->fast_count; fast < end; fast++) {
        if (fast->node < 0) {
            int answer = run_borrowed(&p->steps[fast->index], call, registers);
            if (UNLIKELY(answer != HIT))
                return answer;
        } else if (UNLIKELY(!tw_node_holds(&armed->nodes[fast->node], registers[fast->reg]))) {
            note_stale(p, armed, fast->node);
            return STALE;
        }
    }
    for (PyDictObject **dict = armed->empty, **end = dict + armed->empty_count; dict < end; dict++)
        if (UNLIKELY((*dict)->ma_used))
            return MISS;
    return HIT;
}

/* The steps that make new objects or run user code; `registers` become owned and are released here. */
static int slow_phase(GuardProgram *p, Armed *armed, const Call *call, PyObject **registers, PyObject **inputs)
{
    int holds = 1;
    armed->references++;
    for (int i = 0; i < p->registers; i++)
        Py_XINCREF(registers[i]);
    for (int i = 0; holds && i < armed->slow_count; i++)
        holds = run_owned(p, armed->slow[i], call, registers, NULL);
    if (holds)
        collect(p, registers, inputs);
    clear_registers(registers, p->registers);
    drop_armed(armed);
    return holds;
}

static int check_with(GuardProgram *p, const Call *call, PyObject **registers, PyObject **inputs)
{
    Armed *armed = p->armed;
    int answer = armed ? fast_pass(p, armed, call, registers) : STALE;
    if (answer != HIT)
        return answer == MISS ? 0 : check_fully(p, call, registers, inputs);
    armed->hits++;
    p->fast_hits++;
    if (UNLIKELY(armed->slow_count))
        return slow_phase(p, armed, call, registers, inputs);
    collect(p, registers, inputs);
    return 1;
}

int tw_guards_check(GuardProgram *p, PyObject *function, PyObject *const *locals, Py_ssize_t nlocals, PyObject **inputs)
{
    size_t bytes = sizeof(PyObject *) * (size_t)p->registers + sizeof(int64_t) * (size_t)p->symbols;
    int heap = p->registers + p->symbols > STACK_REGISTERS;
    PyObject **registers = heap ? PyMem_Malloc(bytes) : alloca(bytes + 8);
    if (!registers || p->cleared)
        return 0;
    Call call = {function, locals, nlocals, (int64_t *)(registers + p->registers)};
    memset(call.symbols, 0, sizeof(int64_t) * (size_t)p->symbols);
    int holds = check_with(p, &call, registers, inputs);
    if (heap)
        PyMem_Free(registers);
    return holds;
}

Py_ssize_t tw_guards_inputs(const GuardProgram *p) { return p->input_count; }

/* ---- the Python type */

static int find_code(PyObject *name)
{
    for (int i = 0; i < STEP_CODES; i++)
        if (PyUnicode_CompareWithASCIIString(name, step_names[i]) == 0)
            return i;
    PyErr_Format(PyExc_ValueError, "no guard step %R", name);
    return -1;
}

static int check_argument(const Step *step)
{
    int wants_name = step->code == LOAD_ATTR || step->code == LOAD_DICT_ATTR || step->code == LOAD_GETATTR || step->code == LOAD_KWDEFAULT || step->code == CHECK_HAS_NOT;
    if ((wants_name && !PyUnicode_CheckExact(step->arg)) || ((step->code == CHECK_DICT_KEYS || step->code == CHECK_ORDERED_KEYS || step->code == CHECK_TYPE_LOOKUP) && !PyTuple_CheckExact(step->arg))
        || (step->code == CHECK_TYPE_LOOKUP && (!PyTuple_GET_SIZE(step->arg) || !PyUnicode_CheckExact(PyTuple_GET_ITEM(step->arg, 0))))
        || (step->code == CHECK_IS_WEAK && !PyWeakref_Check(step->arg)))
        return PyErr_Format(PyExc_TypeError, "guard step %s takes another argument than %R", step_names[step->code], step->arg), -1;
    return 0;
}

/* Registers are written once, in order, and read after that: checked here, so that no pass needs to. */
static int parse_step(GuardProgram *p, PyObject *row, Step *step, int defined)
{
    PyObject *name;
    if (!PyTuple_Check(row) || !PyArg_ParseTuple(row, "UiiiOi", &name, &step->out, &step->a, &step->b, &step->arg, &step->guard))
        return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_TypeError, "a guard step is a tuple"), -1);
    step->arg = Py_NewRef(step->arg);
    step->node = -1;
    int code = find_code(name);
    if (code < 0)
        return -1;
    step->code = (StepCode)code;
    if ((uses_a(step) && (step->a < 0 || step->a >= defined)) || (uses_b(step) && (step->b < 0 || step->b >= defined)) || step->a < 0 || step->b < 0
        || (!is_check(step->code) && step->out != defined))
        return PyErr_Format(PyExc_ValueError, "guard step %R reads or writes a register out of order", row), -1;
    if (step->code == CHECK_SIZE && step->b >= p->symbols)
        return PyErr_Format(PyExc_ValueError, "a size binds one of %d symbols", p->symbols), -1;
    if (step->code == CHECK_TENSOR && !(step->tensor = tw_parse_tensor(step->arg, p->symbols)))
        return -1;
    if (step->code == CHECK_RELATION && !(step->relation = tw_parse_relation(step->arg, p->symbols)))
        return -1;
    return check_argument(step);
}

static int parse_steps(GuardProgram *p, PyObject *steps)
{
    int defined = 0;
    for (int i = 0; i < PyTuple_GET_SIZE(steps); i++) {
        p->step_count = i + 1; /* what dealloc frees */
        if (parse_step(p, PyTuple_GET_ITEM(steps, i), &p->steps[i], defined) < 0)
            return -1;
        defined += !is_check(p->steps[i].code);
    }
    p->registers = defined;
    return 0;
}

/* A dict that comes as an argument (**kwargs, mostly) is another one at each call: its items are read each time. */
static int wants_node(const GuardProgram *p, const Step *step)
{
    return reads_attributes(step->code) || (reads_items(step->code) && p->steps[p->makers[step->a]].code != LOAD_LOCAL);
}

static void number_nodes_into(GuardProgram *p, int *node_of)
{
    for (int i = 0; i < p->step_count; i++) {
        Step *step = &p->steps[i];
        if (!is_check(step->code))
            p->makers[step->out] = i;
        if (uses_a(step) && step->code != LOAD_METHOD_SELF && step->code != LOAD_METHOD_FUNCTION && step->code != CHECK_TYPE)
            p->plain_use[step->a] = 1;
        if (uses_b(step))
            p->plain_use[step->b] = 1;
        if (wants_node(p, step)) {
            if (!node_of[step->a])
                node_of[step->a] = ++p->nodes;
            step->node = node_of[step->a] - 1;
        }
    }
    for (int i = 0; i < p->step_count; i++)
        if (p->steps[i].code == CHECK_TYPE || p->steps[i].code == LOAD_TYPE)
            p->steps[i].node = node_of[p->steps[i].a] - 1;
}

static int number_nodes(GuardProgram *p)
{
    int *node_of = PyMem_Calloc((size_t)p->registers + 1, sizeof(int));
    p->makers = PyMem_Calloc((size_t)p->registers + 1, sizeof(int));
    p->plain_use = PyMem_Calloc((size_t)p->registers + 1, 1);
    if (node_of && p->makers && p->plain_use) {
        number_nodes_into(p, node_of);
        p->misses = PyMem_Calloc((size_t)p->nodes + 1, 1);
    }
    PyMem_Free(node_of);
    return p->misses ? 0 : (PyErr_NoMemory(), -1);
}

static int parse_inputs(GuardProgram *p, PyObject *inputs)
{
    p->inputs = PyMem_Calloc((size_t)PyTuple_GET_SIZE(inputs) + 1, sizeof(int));
    if (!p->inputs)
        return PyErr_NoMemory(), -1;
    p->input_count = (int)PyTuple_GET_SIZE(inputs);
    for (int i = 0; i < p->input_count; i++) {
        long reg = PyLong_AsLong(PyTuple_GET_ITEM(inputs, i));
        if (reg < 0 || reg >= p->registers)
            return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_ValueError, "an input is no register"), -1);
        p->inputs[i] = (int)reg;
        p->plain_use[reg] = 1;
    }
    return 0;
}

/* GuardProgram(steps, inputs, symbols): steps are (name, out, a, b, argument, guard); inputs are registers */
static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"steps", "inputs", "symbols", NULL};
    PyObject *steps, *inputs;
    int symbols = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!|i", names, &PyTuple_Type, &steps, &PyTuple_Type, &inputs, &symbols))
        return NULL;
    GuardProgram *p = (GuardProgram *)type->tp_alloc(type, 0);
    if (!p)
        return NULL;
    p->symbols = symbols;
    p->steps = PyMem_Calloc((size_t)PyTuple_GET_SIZE(steps) + 1, sizeof(Step));
    if (!p->steps)
        PyErr_NoMemory();
    else if (parse_steps(p, steps) == 0 && number_nodes(p) == 0 && parse_inputs(p, inputs) == 0)
        return (PyObject *)p;
    Py_DECREF(p);
    return NULL;
}

static int program_traverse(PyObject *self, visitproc visit, void *arg)
{
    GuardProgram *p = (GuardProgram *)self;
    for (int i = 0; i < p->step_count; i++)
        Py_VISIT(p->steps[i].arg);
    return 0;
}

static int program_clear(PyObject *self)
{
    GuardProgram *p = (GuardProgram *)self;
    int count = p->step_count;
    p->step_count = p->input_count = 0;
    p->cleared = 1; /* a program without its arguments must not run */
    drop_armed(p->armed);
    p->armed = NULL;
    for (int i = 0; i < count; i++) {
        tw_free_tensor(p->steps[i].tensor);
        PyMem_Free(p->steps[i].relation);
        Py_CLEAR(p->steps[i].arg);
    }
    return 0;
}

static void program_dealloc(PyObject *self)
{
    GuardProgram *p = (GuardProgram *)self;
    PyObject_GC_UnTrack(self);
    program_clear(self);
    PyMem_Free(p->steps);
    PyMem_Free(p->inputs);
    PyMem_Free(p->makers);
    PyMem_Free(p->plain_use);
    PyMem_Free(p->misses);
    Py_TYPE(self)->tp_free(self);
}

static int parse_call(PyObject *args, PyObject **function, PyObject **locals)
{
    if (!PyArg_ParseTuple(args, "O!O!", &PyFunction_Type, function, &PyTuple_Type, locals))
        return -1;
    return 0;
}

/* check(function, locals) → tuple of inputs, or None */
static PyObject *program_check(PyObject *self, PyObject *args)
{
    GuardProgram *p = (GuardProgram *)self;
    PyObject *function, *locals;
    if (parse_call(args, &function, &locals) < 0)
        return NULL;
    PyObject *inputs = PyTuple_New(p->input_count);
    if (!inputs)
        return NULL;
    if (tw_guards_check(p, function, &PyTuple_GET_ITEM(locals, 0), PyTuple_GET_SIZE(locals), &PyTuple_GET_ITEM(inputs, 0)))
        return inputs;
    Py_DECREF(inputs);
    Py_RETURN_NONE;
}

static PyObject *describe_failure(const Step *step, PyObject *const *registers)
{
    PyObject *seen = is_check(step->code) && uses_a(step) ? registers[step->a] : NULL;
    return Py_BuildValue("iOO", step->guard, seen ? Py_True : Py_False, seen ? seen : Py_None);
}

/* explain(function, locals) → None, or (guard, whether a value was found, the value) of the first guard that fails */
static PyObject *program_explain(PyObject *self, PyObject *args)
{
    GuardProgram *p = (GuardProgram *)self;
    PyObject *function, *locals, *result = NULL;
    if (parse_call(args, &function, &locals) < 0)
        return NULL;
    PyObject **registers = PyMem_Calloc((size_t)(p->registers + p->symbols) + 1, sizeof(PyObject *));
    if (!registers)
        return PyErr_NoMemory();
    Call call = {function, &PyTuple_GET_ITEM(locals, 0), PyTuple_GET_SIZE(locals), (int64_t *)(registers + p->registers)};
    int failed = full_pass(p, &call, registers, NULL);
    result = failed < 0 ? Py_NewRef(Py_None) : describe_failure(&p->steps[failed], registers);
    clear_registers(registers, p->registers);
    PyMem_Free(registers);
    return result;
}

/* stats() → what it took so far, for tests and measurements */
static PyObject *program_stats(PyObject *self, PyObject *unused)
{
    GuardProgram *p = (GuardProgram *)self;
    Armed *armed = p->armed;
    return Py_BuildValue("{s:l,s:l,s:i,s:i,s:i}", "fast_hits", p->fast_hits, "full_passes", p->full_passes, "steps", p->step_count, "repeated",
                         armed ? armed->fast_count + armed->empty_count : -1, "slow", armed ? armed->slow_count : -1);
}

static PyMethodDef program_methods[] = {
    {"check", program_check, METH_VARARGS, "check(function, locals): the tuple of inputs, or None where a guard fails."},
    {"explain", program_explain, METH_VARARGS, "explain(function, locals): None, or (guard index, found, value) of the first failing guard."},
    {"stats", program_stats, METH_NOARGS, "Counts of fast and full passes."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject tw_guards_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "thruway.native._core.GuardProgram",
    .tp_basicsize = sizeof(GuardProgram),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "GuardProgram(steps, inputs, symbols=0): the guards of one entry, compiled.",
    .tp_new = program_new,
    .tp_dealloc = program_dealloc,
    .tp_traverse = program_traverse,
    .tp_clear = program_clear,
    .tp_methods = program_methods,
};

int tw_guard_init(PyObject *module) { return PyModule_AddType(module, &tw_guards_type); }
