/* The Launcher: picks the Program for the sizes of its inputs, and sees that derived values are those of today's weights. */
#include "program.h"
#include <stddef.h>
#include <string.h>

enum { SHAPE_LIMIT = 16, SAMPLES = 4, LINE = 64 };
enum { RESTLESS = 2, QUIET = 16 }; /* changes in a row after which `plain` runs; calls without one after which values are derived again */

PyObject *tw_as_strided, *tw_bump_version, *tw_make_arena;
uint64_t tw_autocast_keys;
static PyTypeObject launcher_type;

/* What a weight looked like when values were derived from it. Fused optimizers and writes through .data or numpy leave the
   version alone, so a few cache lines are compared as well. */
typedef struct {
    PyObject *reference; /* weak */
    char *data;
    int64_t version, span;
    char lines[SAMPLES][LINE];
} Watch;

/* Derived values with the weights they were made from, swapped as one: freeing a tensor may let another thread in. */
typedef struct { PyObject *values; Watch watch[]; } Derived; /* values: a tuple, or None where `plain` shall run */

typedef struct { int64_t *values; Program *program; } Shape;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Py_ssize_t inputs, symbols, watched, shapes;
    Py_ssize_t *symbol_input, *symbol_dim;
    Shape shape[SHAPE_LIMIT];   /* most recently used first */
    Py_ssize_t *watches;        /* inputs that derived values depend on */
    Derived *derived;           /* NULL before the first call */
    PyObject *prepare, *derive, *plain;
    PyObject *first;            /* answers the first call in place of all this; NULL from then on */
    long quiet, restless;       /* calls since the last one; changes in a row with no call between */
} Launcher;

static int64_t version_of(PyObject *tensor)
{
    uint32_t *version = tw_version(tw_handle(tensor));
    if (version)
        return *version;
    PyObject *number = PyObject_GetAttrString(tensor, "_version");
    int64_t result = number ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    PyErr_Clear();              /* an inference tensor has none */
    return result;
}

/* bytes from the first to the end of the last element */
static int64_t span_of(PyObject *tensor)
{
    int64_t ndim, last = 0;
    const int64_t *sizes, *strides;
    TensorHandle handle = tw_handle(tensor);
    if (tw_geometry(handle, &ndim, &sizes, &strides))
        return 0;
    for (int64_t i = 0; i < ndim; i++) {
        if (sizes[i] == 0)
            return 0;
        last += (sizes[i] - 1) * strides[i];
    }
    return (last + 1) * (int64_t)tw_shim.dtype_element_size(tw_dtype(handle));
}

static inline int64_t sample_at(int64_t span, int i) { return span <= LINE ? 0 : (span - LINE) * i / (SAMPLES - 1); }
static inline size_t sample_size(int64_t span) { return span < LINE ? (size_t)span : LINE; }

static int is_same_weight(Watch *w, PyObject *tensor)
{
    if (PyWeakref_GET_OBJECT(w->reference) != tensor || tw_data(tw_handle(tensor)) != w->data || version_of(tensor) != w->version || span_of(tensor) != w->span)
        return 0;
    for (int i = 0; w->data && i < SAMPLES; i++)
        if (memcmp(w->lines[i], w->data + sample_at(w->span, i), sample_size(w->span)))
            return 0;
    return 1;
}

static int look_at(Watch *w, PyObject *tensor)
{
    PyObject *reference = PyWeakref_NewRef(tensor, NULL);
    if (!reference)
        return -1;
    Py_XSETREF(w->reference, reference);
    w->data = tw_data(tw_handle(tensor));
    w->version = version_of(tensor);
    w->span = span_of(tensor);
    for (int i = 0; w->data && i < SAMPLES; i++)
        memcpy(w->lines[i], w->data + sample_at(w->span, i), sample_size(w->span));
    return 0;
}

static void free_derived(Launcher *l, Derived *d)
{
    if (!d)
        return;
    for (Py_ssize_t i = 0; i < l->watched; i++)
        Py_XDECREF(d->watch[i].reference);
    Py_XDECREF(d->values);
    PyMem_Free(d);
}

static void set_derived(Launcher *l, Derived *d)
{
    Derived *old = l->derived;
    l->derived = d;
    free_derived(l, old);
}

static int has_current_derived(Launcher *l, PyObject *const *inputs)
{
    if (!l->derived)
        return 0;
    for (Py_ssize_t i = 0; i < l->watched; i++)
        if (!is_same_weight(&l->derived->watch[i], inputs[l->watches[i]]))
            return 0;
    return 1;
}

static int is_restless(Launcher *l) { return l->restless >= RESTLESS && l->plain != Py_None; }

/* New reference. The weights are looked at before deriving, so a write meanwhile is seen at the next call. The old values go
   first, so that both are never there at once. */
static PyObject *derive_again(Launcher *l, PyObject *const *inputs)
{
    Derived *d = PyMem_Calloc(1, sizeof(Derived) + sizeof(Watch) * l->watched);
    if (!d)
        return PyErr_NoMemory();
    l->quiet = 0;
    set_derived(l, NULL);
    int bad = 0;
    for (Py_ssize_t i = 0; i < l->watched && !bad; i++)
        bad = look_at(&d->watch[i], inputs[l->watches[i]]) < 0;
    if (!bad)
        d->values = is_restless(l) ? Py_NewRef(Py_None) : PyObject_Vectorcall(l->derive, inputs, l->inputs, NULL);
    PyObject *values = Py_XNewRef(d->values);
    if (values)
        set_derived(l, d);
    else
        free_derived(l, d);
    return values;
}

/* New reference to the derived values, or to None where weights change at every call and `plain` shall run. */
static PyObject *current_derived(Launcher *l, PyObject *const *inputs)
{
    if (LIKELY(has_current_derived(l, inputs))) {
        l->quiet++;
        if (LIKELY(l->derived->values != Py_None) || l->quiet <= QUIET)
            return Py_NewRef(l->derived->values);
        l->restless = 0;
    } else
        l->restless = l->derived && l->quiet == 0 ? l->restless + 1 : 0;
    return derive_again(l, inputs);
}

static void free_shape(Shape gone)
{
    PyMem_Free(gone.values);
    Py_XDECREF((PyObject *)gone.program);
}

static void forget_shapes(Launcher *l)
{
    while (l->shapes)
        free_shape(l->shape[--l->shapes]);
}

static Program *prepare(Launcher *l, const int64_t *values)
{
    PyObject *arguments = PyTuple_New(l->symbols);
    for (Py_ssize_t i = 0; arguments && i < l->symbols; i++)
        PyTuple_SET_ITEM(arguments, i, PyLong_FromLongLong(values[i]));
    PyObject *program = arguments ? PyObject_CallObject(l->prepare, arguments) : NULL;
    Py_XDECREF(arguments);
    if (program && (Py_TYPE(program) != &tw_program_type || ((Program *)program)->inputs != l->inputs)) {
        PyErr_SetString(PyExc_TypeError, "prepare gives a Program of as many inputs");
        Py_CLEAR(program);
    }
    return (Program *)program;
}

static Program *add_shape(Launcher *l, const int64_t *values)
{
    Program *program = prepare(l, values);
    if (!program)
        return NULL;
    int64_t *copy = PyMem_Malloc(sizeof(int64_t) * (l->symbols + 1));
    if (!copy) {
        Py_DECREF(program);
        return (Program *)PyErr_NoMemory();
    }
    memcpy(copy, values, sizeof(int64_t) * l->symbols);
    Shape gone = {NULL, NULL};
    if (l->shapes == SHAPE_LIMIT)
        gone = l->shape[--l->shapes];
    memmove(&l->shape[1], &l->shape[0], sizeof(Shape) * l->shapes);
    l->shape[0] = (Shape){copy, program};
    l->shapes++;
    Py_INCREF((PyObject *)program);
    free_shape(gone); /* last: it may let another thread in */
    return program;
}

/* new reference to the Program for the sizes of these inputs */
static Program *find_program(Launcher *l, PyObject *const *inputs)
{
    int64_t values[l->symbols + 1];
    for (Py_ssize_t i = 0; i < l->symbols; i++) {
        int64_t ndim;
        const int64_t *sizes, *strides;
        if (tw_check(tw_geometry(tw_handle(inputs[l->symbol_input[i]]), &ndim, &sizes, &strides), "the sizes of a tensor"))
            return NULL;
        if (l->symbol_dim[i] >= ndim)
            return (Program *)PyErr_Format(PyExc_ValueError, "input %zd has %lld dimensions", l->symbol_input[i], (long long)ndim);
        values[i] = sizes[l->symbol_dim[i]];
    }
    for (Py_ssize_t at = 0; at < l->shapes; at++)
        if (!l->symbols || !memcmp(l->shape[at].values, values, sizeof(int64_t) * l->symbols)) {
            Shape found = l->shape[at];
            memmove(&l->shape[1], &l->shape[0], sizeof(Shape) * at);
            l->shape[0] = found;
            return (Program *)Py_NewRef((PyObject *)found.program);
        }
    return add_shape(l, values);
}

static PyObject *launch(PyObject *self, PyObject *const *inputs, size_t flagged, PyObject *keywords)
{
    Launcher *l = (Launcher *)self;
    Py_ssize_t count = PyVectorcall_NARGS(flagged);
    if (count != l->inputs || (keywords && PyTuple_GET_SIZE(keywords)))
        return PyErr_Format(PyExc_TypeError, "expected %zd tensors, got %zd arguments", l->inputs, count);
    for (Py_ssize_t i = 0; i < count; i++)
        if (UNLIKELY(!tw_is_tensor(inputs[i])))
            return PyErr_Format(PyExc_TypeError, "argument %zd is no tensor but %.80s", i, Py_TYPE(inputs[i])->tp_name);
    PyObject *derived = NULL, *result = NULL, *first = l->first;
    if (UNLIKELY(first != NULL)) {
        l->first = NULL;
        result = PyObject_Vectorcall(first, inputs, count, NULL);
        Py_DECREF(first);
        return result;
    }
    if (l->derive && !(derived = current_derived(l, inputs))) {
        tw_fail_region(0);
        return NULL;
    }
    if (UNLIKELY(derived == Py_None)) {
        Py_DECREF(derived);
        return PyObject_Vectorcall(l->plain, inputs, count, NULL);
    }
    Program *program = find_program(l, inputs);
    if (LIKELY(program != NULL))
        result = tw_run_program(program, inputs, derived);
    else
        tw_fail_region(0);
    Py_XDECREF((PyObject *)program);
    Py_XDECREF(derived);
    return result;
}

static int read_pairs(PyObject *pairs, Py_ssize_t count, Py_ssize_t inputs, Py_ssize_t *first, Py_ssize_t *second)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(pairs, i), "nn", &first[i], &second[i]))
            return -1;
        if (first[i] < 0 || first[i] >= inputs || second[i] < 0) {
            PyErr_SetString(PyExc_ValueError, "a symbol names an input and a dimension");
            return -1;
        }
    }
    return 0;
}

static int read_watched(PyObject *watched, Py_ssize_t inputs, Py_ssize_t *into)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(watched); i++) {
        into[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(watched, i));
        if (PyErr_Occurred())
            return -1;
        if (into[i] < 0 || into[i] >= inputs) {
            PyErr_SetString(PyExc_ValueError, "a watched weight is an input");
            return -1;
        }
    }
    return 0;
}

/* Launcher(inputs, symbols=((input, dimension), …), prepare, watched=(input, …), derive=None, plain=None, first=None): derive(*inputs) gives
   the tuple of derived values, or None to have `plain` called with the inputs from now on, until a weight changes. `first` answers the first call. */
static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"inputs", "symbols", "prepare", "watched", "derive", "plain", "first", NULL};
    PyObject *symbols, *prepare, *watched, *derive = Py_None, *plain = Py_None, *first = Py_None;
    Py_ssize_t inputs;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nO!OO!|OOO", names, &inputs, &PyTuple_Type, &symbols, &prepare, &PyTuple_Type, &watched, &derive, &plain, &first)
        || !tw_is_binding_ready())
        return NULL;
    Launcher *l = (Launcher *)type->tp_alloc(type, 0);
    if (!l)
        return NULL;
    l->vectorcall = launch;
    l->inputs = inputs;
    l->prepare = Py_NewRef(prepare);
    l->derive = derive == Py_None ? NULL : Py_NewRef(derive);
    l->plain = Py_NewRef(plain);
    l->first = first == Py_None ? NULL : Py_NewRef(first);
    l->symbols = PyTuple_GET_SIZE(symbols);
    l->symbol_input = PyMem_Calloc(l->symbols * 2 + 1, sizeof(Py_ssize_t));
    l->symbol_dim = l->symbol_input + l->symbols;
    l->watched = PyTuple_GET_SIZE(watched);
    l->watches = PyMem_Calloc(l->watched + 1, sizeof(Py_ssize_t));
    if (l->symbol_input && l->watches && read_pairs(symbols, l->symbols, inputs, l->symbol_input, l->symbol_dim) == 0
        && read_watched(watched, inputs, l->watches) == 0)
        return (PyObject *)l;
    if (!PyErr_Occurred())
        PyErr_NoMemory();
    Py_DECREF(l);
    return NULL;
}

static int launcher_traverse(PyObject *self, visitproc visit, void *arg)
{
    Launcher *l = (Launcher *)self;
    Py_VISIT(l->prepare);
    Py_VISIT(l->derive);
    if (l->derived)
        Py_VISIT(l->derived->values);
    Py_VISIT(l->plain);
    Py_VISIT(l->first);
    for (Py_ssize_t i = 0; i < l->shapes; i++)
        Py_VISIT((PyObject *)l->shape[i].program);
    return 0;
}

static int launcher_clear(PyObject *self)
{
    Launcher *l = (Launcher *)self;
    forget_shapes(l);
    set_derived(l, NULL);
    Py_CLEAR(l->prepare);
    Py_CLEAR(l->derive);
    Py_CLEAR(l->plain);
    Py_CLEAR(l->first);
    return 0;
}

static void launcher_dealloc(PyObject *self)
{
    Launcher *l = (Launcher *)self;
    PyObject_GC_UnTrack(self);
    launcher_clear(self);
    PyMem_Free(l->symbol_input);
    PyMem_Free(l->watches);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *launcher_release(PyObject *self, PyObject *ignored)
{
    Launcher *l = (Launcher *)self;
    forget_shapes(l);
    set_derived(l, NULL);
    Py_RETURN_NONE;
}

static PyMethodDef launcher_methods[] = {
    {"release", launcher_release, METH_NOARGS, "Drops programs, arenas and derived values; the next call makes them again."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject launcher_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "thruway.native._core.Launcher",
    .tp_doc = "Runs the Program that fits the sizes of its inputs.",
    .tp_basicsize = sizeof(Launcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = launcher_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Launcher, vectorcall),
    .tp_dealloc = launcher_dealloc,
    .tp_traverse = launcher_traverse,
    .tp_clear = launcher_clear,
    .tp_methods = launcher_methods,
};

/* bind_launch(as_strided, bump_version, make_arena, autocast keys) → whether everything was found; Programs can be made only then */
static PyObject *bind_launch(PyObject *module, PyObject *args)
{
    PyObject *strided, *bump, *arena;
    unsigned long long autocast;
    if (!PyArg_ParseTuple(args, "OOOK", &strided, &bump, &arena, &autocast))
        return NULL;
    if (!tw_tensors_ready() || !tw_symbol(TW_KEYS_SYMBOL))
        Py_RETURN_FALSE;
    Py_XSETREF(tw_as_strided, Py_NewRef(strided));
    Py_XSETREF(tw_bump_version, Py_NewRef(bump));
    Py_XSETREF(tw_make_arena, Py_NewRef(arena));
    tw_autocast_keys = autocast;
    Py_RETURN_TRUE;
}

/* look_at(list of tensors) → bytes that are equal where each is the same object at the same address with the same version */
static PyObject *look_at_all(PyObject *module, PyObject *tensors)
{
    if (!PyList_Check(tensors) || !tw_tensors_ready())
        return PyErr_Format(PyExc_TypeError, "look_at takes a list of tensors, once the core is bound");
    Py_ssize_t count = PyList_GET_SIZE(tensors);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, count * 3 * (Py_ssize_t)sizeof(int64_t));
    int64_t *words = bytes ? (int64_t *)PyBytes_AS_STRING(bytes) : NULL;
    for (Py_ssize_t i = 0; bytes && i < count; i++) {
        PyObject *tensor = PyList_GET_ITEM(tensors, i);
        if (!tw_is_tensor(tensor)) {
            Py_DECREF(bytes);
            return PyErr_Format(PyExc_TypeError, "item %zd is no tensor", i);
        }
        words[3 * i] = (int64_t)(intptr_t)tensor;
        words[3 * i + 1] = (int64_t)(intptr_t)tw_data(tw_handle(tensor));
        words[3 * i + 2] = version_of(tensor);
    }
    return bytes;
}

static PyMethodDef functions[] = {
    {"look_at", look_at_all, METH_O, "Identities, addresses and versions of tensors, as bytes."},
    {"bind_launch", bind_launch, METH_VARARGS, "Takes what launching needs of torch."},
    {NULL, NULL, 0, NULL},
};

int tw_launch_init(PyObject *module)
{
    if (PyModule_AddFunctions(module, functions) < 0 || PyModule_AddType(module, &tw_program_type) < 0)
        return -1;
    return PyModule_AddType(module, &launcher_type);
}
