/* Builds Programs from Python's rows, and their frames. */
#include "program.h"

enum { POOL_LIMIT = 8 };

static void *reserve(Program *p, size_t bytes)
{
    Block *block = PyMem_Calloc(1, sizeof(Block) + bytes);
    if (!block)
        return PyErr_NoMemory();
    block->next = p->blocks;
    p->blocks = block;
    return block + 1;
}

static PyObject *refer(Program *p, PyObject *object) { return PyList_Append(p->references, object) < 0 ? NULL : object; }

static int read_list(Program *p, PyObject *tuple, Numbers *into)
{
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of integers");
        return -1;
    }
    into->count = PyTuple_GET_SIZE(tuple);
    into->at = reserve(p, sizeof(int64_t) * into->count);
    for (Py_ssize_t i = 0; into->at && i < into->count; i++)
        into->at[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    return PyErr_Occurred() ? -1 : 0;
}

static int read_slots(Program *p, PyObject *tuple, Numbers *into)
{
    if (read_list(p, tuple, into) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < into->count; i++)
        if (into->at[i] < 0 || into->at[i] >= p->slots) {
            PyErr_Format(PyExc_ValueError, "slot %lld is none of %zd", (long long)into->at[i], p->slots);
            return -1;
        }
    return 0;
}

static int is_slot(Program *p, Py_ssize_t slot)
{
    if (slot >= 0 && slot < p->slots)
        return 1;
    PyErr_Format(PyExc_ValueError, "slot %zd is none of %zd", slot, p->slots);
    return 0;
}

static int read_layout(Program *p, PyObject *sizes, PyObject *strides, int dtype, int device, Layout *into)
{
    into->dtype = dtype;
    into->device = device;
    return read_list(p, sizes, &into->sizes) | read_list(p, strides, &into->strides);
}

static int read_kernel(Program *p, PyObject *row, KernelStep *s)
{
    int kind;
    unsigned long long address;
    PyObject *slots, *sizes, *bumps;
    if (!PyArg_ParseTuple(row, "iOKOOOpp", &kind, &s->name, &address, &slots, &sizes, &bumps, &s->releases, &s->writes) || !refer(p, s->name))
        return -1;
    s->function = (KernelFunction)(uintptr_t)address;
    if (read_slots(p, slots, &s->slots) < 0 || read_list(p, sizes, &s->sizes) < 0 || read_slots(p, bumps, &s->bumps) < 0)
        return -1;
    p->most_pointers = Py_MAX(p->most_pointers, s->slots.count);
    return 0;
}

static int read_fresh(Program *p, PyObject *row, FreshStep *s)
{
    int kind, dtype, device;
    PyObject *sizes, *strides;
    if (!PyArg_ParseTuple(row, "inOOii", &kind, &s->slot, &sizes, &strides, &dtype, &device) || !is_slot(p, s->slot))
        return -1;
    return read_layout(p, sizes, strides, dtype, device, &s->layout);
}

static int read_view(Program *p, PyObject *row, ViewStep *s)
{
    int kind;
    if (!PyArg_ParseTuple(row, "innnnppOO", &kind, &s->slot, &s->base, &s->bytes, &s->elements, &s->object, &s->leaves, &s->sizes, &s->strides))
        return -1;
    if (!is_slot(p, s->slot) || !is_slot(p, s->base) || !refer(p, s->sizes) || !refer(p, s->strides))
        return -1;
    p->calls_torch |= s->object && s->leaves;
    return read_layout(p, s->sizes, s->strides, 0, 0, &s->layout);
}

static int read_argument(Program *p, PyObject *row, Argument *a)
{
    PyObject *value;
    if (!PyArg_ParseTuple(row, "iO", &a->kind, &value))
        return -1;
    if (a->kind == SLOT) {
        a->slot = PyLong_AsSsize_t(value);
        return PyErr_Occurred() || !is_slot(p, a->slot) ? -1 : 0;
    }
    if (a->kind == CONSTANT) {
        a->constant = refer(p, value);
        return a->constant ? 0 : -1;
    }
    if (!PyTuple_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "a list argument is a tuple of arguments");
        return -1;
    }
    a->count = PyTuple_GET_SIZE(value);
    a->items = reserve(p, sizeof(Argument) * a->count);
    for (Py_ssize_t i = 0; i < a->count; i++)
        if (!a->items || read_argument(p, PyTuple_GET_ITEM(value, i), &a->items[i]) < 0)
            return -1;
    return 0;
}

static int read_expected(Program *p, PyObject *specs, CallStep *s)
{
    Py_ssize_t count = PyTuple_GET_SIZE(specs);
    if (!count)
        return 0;
    if (count != s->outs.count) {
        PyErr_SetString(PyExc_ValueError, "as many layouts as outputs");
        return -1;
    }
    s->expected = reserve(p, sizeof(Layout) * count);
    for (Py_ssize_t i = 0; s->expected && i < count; i++) {
        PyObject *sizes, *strides;
        int dtype;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(specs, i), "OOi", &sizes, &strides, &dtype) || read_layout(p, sizes, strides, dtype, 0, &s->expected[i]) < 0)
            return -1;
    }
    return s->expected ? 0 : -1;
}

static int read_call(Program *p, PyObject *row, CallStep *s)
{
    int kind;
    PyObject *arguments, *outs, *expected;
    if (!PyArg_ParseTuple(row, "iOO!O!OO!p", &kind, &s->callable, &PyTuple_Type, &arguments, &PyTuple_Type, &s->keywords, &outs, &PyTuple_Type, &expected,
                          &s->writes))
        return -1;
    if (!refer(p, s->callable) || !refer(p, s->keywords) || read_slots(p, outs, &s->outs) < 0 || read_expected(p, expected, s) < 0)
        return -1;
    s->count = PyTuple_GET_SIZE(arguments);
    s->arguments = reserve(p, sizeof(Argument) * s->count);
    for (Py_ssize_t i = 0; i < s->count; i++)
        if (!s->arguments || read_argument(p, PyTuple_GET_ITEM(arguments, i), &s->arguments[i]) < 0)
            return -1;
    p->calls_torch = 1;
    return 0;
}

static int read_shim(Program *p, PyObject *row, ShimStep *s)
{
    int kind;
    const char *symbol;
    PyObject *slots;
    if (!PyArg_ParseTuple(row, "isO(dd)p", &kind, &symbol, &slots, &s->scalars[0], &s->scalars[1], &s->releases) || read_slots(p, slots, &s->slots) < 0)
        return -1;
    s->function = tw_symbol(symbol);
    if (s->function && (s->slots.count == 3 || s->slots.count == 4))
        return 0;
    PyErr_Format(PyExc_ValueError, "%s is no shim function that can be called here", symbol);
    return -1;
}

static int read_drop(Program *p, PyObject *row, Numbers *drop)
{
    int kind;
    PyObject *slots;
    return PyArg_ParseTuple(row, "iO", &kind, &slots) ? read_slots(p, slots, drop) : -1;
}

/* A GPU kernel. `words`: what follows the pointers among its arguments, 8 bytes each. */
static int read_launch(Program *p, PyObject *row, LaunchStep *s)
{
    int kind;
    unsigned long long stream, current, push, pop, launch, context, function;
    PyObject *slots, *words, *bumps;
    if (!PyArg_ParseTuple(row, "iO(KKKKK)KKIIIiOOOp", &kind, &s->name, &stream, &current, &push, &pop, &launch, &context, &function, &s->programs, &s->threads,
                          &s->shared, &s->device, &slots, &words, &bumps, &s->writes)
        || !refer(p, s->name))
        return -1;
    s->cuda = (Cuda){(StreamFunction)(uintptr_t)stream, (ContextFunction)(uintptr_t)current, (ContextFunction)(uintptr_t)push,
                     (ContextFunction)(uintptr_t)pop, (LaunchFunction)(uintptr_t)launch};
    s->context = (void *)(uintptr_t)context;
    s->function = (void *)(uintptr_t)function;
    if (read_slots(p, slots, &s->slots) < 0 || read_list(p, words, &s->words) < 0 || read_slots(p, bumps, &s->bumps) < 0)
        return -1;
    p->most_pointers = Py_MAX(p->most_pointers, s->slots.count);
    return 0;
}

static int read_step(Program *p, PyObject *row, Step *step)
{
    if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) < 2) {
        PyErr_SetString(PyExc_TypeError, "a step is a tuple that starts with its kind");
        return -1;
    }
    step->kind = (int)PyLong_AsLong(PyTuple_GET_ITEM(row, 0));
    switch (step->kind) {
    case KERNEL: return read_kernel(p, row, &step->kernel);
    case FRESH: return read_fresh(p, row, &step->fresh);
    case VIEW: return read_view(p, row, &step->view);
    case CALL: return read_call(p, row, &step->call);
    case SHIM: return read_shim(p, row, &step->shim);
    case DROP: return read_drop(p, row, &step->drop);
    case LAUNCH: return read_launch(p, row, &step->launch);
    default: PyErr_Format(PyExc_ValueError, "no such step: %d", step->kind); return -1;
    }
}

int tw_is_binding_ready(void)
{
    if (tw_tensors_ready() && tw_as_strided)
        return 1;
    PyErr_SetString(PyExc_RuntimeError, "the native core was not bound to torch");
    return 0;
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"slots", "inputs", "arena_bytes", "steps", "outputs", "read_inputs", "per_call", "make_frame", NULL};
    PyObject *steps, *outputs, *read_inputs, *per_call, *make_frame;
    Py_ssize_t slots, inputs;
    long long arena_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nnLO!OOOO", names, &slots, &inputs, &arena_bytes, &PyTuple_Type, &steps, &outputs, &read_inputs, &per_call, &make_frame)
        || !tw_is_binding_ready())
        return NULL;
    Program *p = (Program *)type->tp_alloc(type, 0);
    if (!p)
        return NULL;
    p->slots = slots;
    p->inputs = inputs;
    p->arena_bytes = arena_bytes;
    p->make_frame = Py_NewRef(make_frame);
    p->references = PyList_New(0);
    p->count = PyTuple_GET_SIZE(steps);
    p->steps = reserve(p, sizeof(Step) * p->count);
    if (!p->references || !p->steps || read_slots(p, outputs, &p->outputs) < 0 || read_slots(p, read_inputs, &p->read_inputs) < 0
        || read_slots(p, per_call, &p->per_call) < 0)
        goto failed;
    for (Py_ssize_t i = 0; i < p->count; i++)
        if (read_step(p, PyTuple_GET_ITEM(steps, i), &p->steps[i]) < 0)
            goto failed;
    return (PyObject *)p;
failed:
    Py_DECREF(p);
    return NULL;
}

/* ---- frames ------------------------------------------------------------------------------------------------------- */

void tw_free_frame(Frame *f)
{
    Program *p = f->program;
    if (f->arena)
        tw_leave_arena(f); /* first: what follows may let other threads run */
    for (Py_ssize_t i = p->inputs; i < p->slots; i++)
        Py_XDECREF(f->object[i]);
    Py_XDECREF(f->derived);
    PyMem_Free(f);
}

static Frame *blank_frame(Program *p, PyObject *derived)
{
    size_t words = p->slots * 2 + p->most_pointers + 1;
    Frame *f = PyMem_Calloc(1, sizeof(Frame) + words * sizeof(void *));
    if (!f)
        return (Frame *)PyErr_NoMemory();
    f->program = p;
    f->address = (void **)(f + 1);
    f->object = (PyObject **)(f->address + p->slots);
    f->pointers = (void **)(f->object + p->slots);
    f->derived = Py_XNewRef(derived);
    return f;
}

static int enter_arena(Program *p, Frame *f)
{
    if (!p->arena_bytes)
        return 0;
    f->arena = tw_idle_arena(p->arena_bytes);
    if (!f->arena)
        return -1;
    f->next_on_arena = f->arena->frames;
    f->arena->frames = f;
    f->arena->busy = 1;
    return 0;
}

static int fill_frame(Program *p, Frame *f)
{
    PyObject *derived = f->derived ? f->derived : Py_None, *arena = f->arena ? f->arena->tensor : Py_None;
    PyObject *objects, *addresses, *made = PyObject_CallFunctionObjArgs(p->make_frame, derived, arena, NULL);
    int good = made && PyArg_ParseTuple(made, "O!O!", &PyTuple_Type, &objects, &PyTuple_Type, &addresses);
    if (good && (PyTuple_GET_SIZE(objects) != p->slots || PyTuple_GET_SIZE(addresses) != p->slots)) {
        PyErr_SetString(PyExc_ValueError, "make_frame gives one object and one address per slot");
        good = 0;
    }
    for (Py_ssize_t i = p->inputs; good && i < p->slots; i++) {
        PyObject *object = PyTuple_GET_ITEM(objects, i);
        f->object[i] = object == Py_None ? NULL : Py_NewRef(object);
        f->address[i] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(addresses, i));
    }
    Py_XDECREF(made);
    return good && !PyErr_Occurred() ? 0 : -1;
}

static Frame *new_frame(Program *p, PyObject *derived)
{
    Frame *f = blank_frame(p, derived);
    if (!f || (enter_arena(p, f) == 0 && fill_frame(p, f) == 0))
        return f;
    if (f->arena)
        f->arena->busy = 0;
    tw_free_frame(f);
    return NULL;
}

/* an idle frame of today's derived values, out of the pool; frames of earlier ones go */
static Frame *take_idle_frame(Program *p, PyObject *derived)
{
    Frame **at = &p->pool, *f;
    while ((f = *at)) {
        int current = f->derived == derived;
        if (current && f->arena && f->arena->busy) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        p->pooled--;
        if (LIKELY(current))
            return f;
        tw_free_frame(f);
        at = &p->pool; /* freeing may have run other code */
    }
    return NULL;
}

Frame *tw_lease(Program *p, PyObject *derived)
{
    Frame *f = take_idle_frame(p, derived);
    if (UNLIKELY(!f))
        return new_frame(p, derived);
    if (f->arena)
        f->arena->busy = 1;
    return f;
}

void tw_give_back(Program *p, Frame *f)
{
    for (Py_ssize_t i = 0; i < p->per_call.count; i++)
        Py_CLEAR(f->object[p->per_call.at[i]]);
    if (f->arena)
        f->arena->busy = 0;
    if (p->pooled >= POOL_LIMIT) {
        tw_free_frame(f);
        return;
    }
    f->next = p->pool;
    p->pool = f;
    p->pooled++;
}

static void drop_pool(Program *p)
{
    while (p->pool) {
        Frame *f = p->pool;
        p->pool = f->next;
        p->pooled--;
        tw_free_frame(f);
    }
}

static int program_traverse(PyObject *self, visitproc visit, void *arg)
{
    Program *p = (Program *)self;
    Py_VISIT(p->make_frame);
    Py_VISIT(p->references);
    return 0;
}

static int program_clear(PyObject *self)
{
    Program *p = (Program *)self;
    drop_pool(p);
    Py_CLEAR(p->make_frame);
    return 0;
}

static void program_dealloc(PyObject *self)
{
    Program *p = (Program *)self;
    PyObject_GC_UnTrack(self);
    program_clear(self);
    Py_CLEAR(p->references);
    while (p->blocks) {
        Block *next = p->blocks->next;
        PyMem_Free(p->blocks);
        p->blocks = next;
    }
    Py_TYPE(self)->tp_free(self);
}

static PyObject *program_release(PyObject *self, PyObject *ignored)
{
    drop_pool((Program *)self);
    Py_RETURN_NONE;
}

static PyMethodDef program_methods[] = {
    {"release", program_release, METH_NOARGS, "Frees the frames, with their arenas, that wait for a call."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject tw_program_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "thruway.native._core.Program",
    .tp_doc = "A launch list whose sizes are numbers.",
    .tp_basicsize = sizeof(Program),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = program_new,
    .tp_dealloc = program_dealloc,
    .tp_traverse = program_traverse,
    .tp_clear = program_clear,
    .tp_methods = program_methods,
};
