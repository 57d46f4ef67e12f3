/* The checks of a guard program: constants by exact type and bits, containers, tensors, relations between sizes. */
#include "guard.h"
#include <string.h>

static int same_constant(PyObject *a, PyObject *b);

/* Python's own types may stand on the heap too, as deque does from 3.12 on, but never change. */
static int is_made_in_python(PyTypeObject *type)
{
    return (type->tp_flags & (Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_IMMUTABLETYPE)) == Py_TPFLAGS_HEAPTYPE;
}

static int same_items(PyObject *const *a, PyObject *const *b, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (!same_constant(a[i], b[i]))
            return 0;
    return 1;
}

static int same_dict(PyObject *a, PyObject *b)
{
    Py_ssize_t at_a = 0, at_b = 0;
    PyObject *key_a, *value_a, *key_b, *value_b;
    if (PyDict_GET_SIZE(a) != PyDict_GET_SIZE(b))
        return 0;
    while (PyDict_Next(a, &at_a, &key_a, &value_a) && PyDict_Next(b, &at_b, &key_b, &value_b))
        if (!same_constant(key_a, key_b) || !same_constant(value_a, value_b))
            return 0;
    return 1;
}

static int has_same(PyObject *set, PyObject *wanted)
{
    Py_ssize_t at = 0;
    PyObject *item;
    Py_hash_t hash;
    while (_PySet_NextEntry(set, &at, &item, &hash))
        if (same_constant(item, wanted))
            return 1;
    return 0;
}

static int same_set(PyObject *a, PyObject *b)
{
    Py_ssize_t at = 0;
    PyObject *item;
    Py_hash_t hash;
    if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b))
        return 0;
    while (_PySet_NextEntry(a, &at, &item, &hash))
        if (!has_same(b, item))
            return 0;
    return 1;
}

static int same_slice(PySliceObject *a, PySliceObject *b)
{
    return same_constant(a->start, b->start) && same_constant(a->stop, b->stop) && same_constant(a->step, b->step);
}

/* Equal by exact type and value, floats by bits. Types made in Python compare by identity: no user code runs here. */
static int same_constant(PyObject *a, PyObject *b)
{
    PyTypeObject *type = Py_TYPE(a);
    if (a == b && !PyList_Check(a) && !PyDict_Check(a) && !PyAnySet_Check(a))
        return 1;
    if (type != Py_TYPE(b))
        return 0;
    if (type == &PyFloat_Type)
        return memcmp(&((PyFloatObject *)a)->ob_fval, &((PyFloatObject *)b)->ob_fval, sizeof(double)) == 0;
    if (type == &PyComplex_Type)
        return memcmp(&((PyComplexObject *)a)->cval, &((PyComplexObject *)b)->cval, sizeof(Py_complex)) == 0;
    if (PyTuple_Check(a))
        return PyTuple_GET_SIZE(a) == PyTuple_GET_SIZE(b) && same_items(&PyTuple_GET_ITEM(a, 0), &PyTuple_GET_ITEM(b, 0), PyTuple_GET_SIZE(a));
    if (PyList_Check(a))
        return PyList_GET_SIZE(a) == PyList_GET_SIZE(b) && same_items(PySequence_Fast_ITEMS(a), PySequence_Fast_ITEMS(b), PyList_GET_SIZE(a));
    if (PyDict_Check(a))
        return same_dict(a, b);
    if (PyAnySet_Check(a))
        return same_set(a, b);
    if (type == &PySlice_Type)
        return same_slice((PySliceObject *)a, (PySliceObject *)b);
    if (is_made_in_python(type))
        return 0;
    int same = PyObject_RichCompareBool(a, b, Py_EQ);
    if (same < 0)
        PyErr_Clear();
    return same > 0;
}

/* len() of a builtin container, or of a subclass that keeps its storage; -1 for anything else */
static Py_ssize_t length_of(PyObject *value)
{
    if (PyTuple_Check(value) || PyList_Check(value))
        return Py_SIZE(value);
    if (PyDict_Check(value))
        return PyDict_GET_SIZE(value);
    if (PyAnySet_Check(value))
        return PySet_GET_SIZE(value);
    Py_ssize_t length = is_made_in_python(Py_TYPE(value)) ? -1 : PyObject_Size(value);
    if (length < 0)
        PyErr_Clear();
    return length;
}

/* `keys`: the tuple of keys in order, constants or identities. The order that an OrderedDict of several keys has of its own is not read here. */
static int has_keys(PyObject *dict, PyObject *keys)
{
    Py_ssize_t at = 0, i = 0, count = PyTuple_GET_SIZE(keys);
    PyObject *key, *value;
    if (!PyDict_Check(dict) || (PyODict_Check(dict) && count > 1) || PyDict_GET_SIZE(dict) != count)
        return 0;
    while (i < count && PyDict_Next(dict, &at, &key, &value))
        if (!same_constant(key, PyTuple_GET_ITEM(keys, i++)))
            return 0;
    return 1;
}

/* the keys of an OrderedDict in its own order, whatever a subclass says */
static int has_order(PyObject *dict, PyObject *keys)
{
    PyObject *iterator = PyODict_Check(dict) ? PyODict_Type.tp_iter(dict) : NULL, *key;
    Py_ssize_t i = 0, count = PyTuple_GET_SIZE(keys);
    int same = iterator && PyDict_GET_SIZE(dict) == count;
    while (same && i < count && (key = PyIter_Next(iterator))) {
        same = same_constant(key, PyTuple_GET_ITEM(keys, i++));
        Py_DECREF(key);
    }
    Py_XDECREF(iterator);
    PyErr_Clear();
    return same && i == count;
}

static int python_says(PyObject *callable, PyObject *value)
{
    PyObject *answer = PyObject_CallOneArg(callable, value);
    int truth = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    if (truth < 0)
        PyErr_Clear();
    return truth > 0;
}

/* `wanted`: (name, what lookup along the MRO finds), or (name,) where it must find nothing; a third item says of other objects whether they will do */
static int finds_in_type(PyObject *type, PyObject *wanted)
{
    if (!PyType_Check(type))
        return 0;
    PyObject *expected = PyTuple_GET_SIZE(wanted) > 1 ? PyTuple_GET_ITEM(wanted, 1) : NULL;
    PyObject *found = _PyType_Lookup((PyTypeObject *)type, PyTuple_GET_ITEM(wanted, 0));
    return found == expected || (found && PyTuple_GET_SIZE(wanted) > 2 && python_says(PyTuple_GET_ITEM(wanted, 2), found));
}

static int lacks(PyObject *dict, PyObject *key)
{
    if (!PyDict_Check(dict))
        return 0;
    int there = PyDict_Contains(dict, key);
    if (there < 0)
        PyErr_Clear();
    return there == 0;
}

static int has_code(PyObject *value, PyObject *code)
{
    if (PyMethod_Check(value))
        value = PyMethod_GET_FUNCTION(value);
    return PyFunction_Check(value) && PyFunction_GET_CODE(value) == code;
}

/* a dict, or a subclass that says neither its length nor its truth otherwise */
static int is_dict_like(PyTypeObject *type)
{
    return PyType_FastSubclass(type, Py_TPFLAGS_DICT_SUBCLASS) && type->tp_as_mapping->mp_length == PyDict_Type.tp_as_mapping->mp_length
        && !(type->tp_as_number && type->tp_as_number->nb_bool);
}

static int is_true(PyObject *value)
{
    if (is_dict_like(Py_TYPE(value)))
        return PyDict_GET_SIZE(value) != 0;
    if (is_made_in_python(Py_TYPE(value)))
        return -1;
    int truth = PyObject_IsTrue(value);
    if (truth < 0)
        PyErr_Clear();
    return truth;
}

/* first byte and one past the last byte of a tensor's memory; equal where it has none */
static int extent(PyObject *tensor, char **low, char **high)
{
    int64_t ndim, last = 0;
    const int64_t *sizes, *strides;
    if (!tw_is_tensor(tensor) || tw_geometry(tw_handle(tensor), &ndim, &sizes, &strides))
        return -1;
    *low = *high = tw_data(tw_handle(tensor));
    for (int64_t i = 0; i < ndim; i++) {
        if (sizes[i] == 0)
            return 0;
        last += (sizes[i] - 1) * strides[i];
    }
    *high += (last + 1) * (int64_t)tw_shim.dtype_element_size(tw_dtype(tw_handle(tensor)));
    return 0;
}

static int apart(PyObject *a, PyObject *b)
{
    char *low_a, *high_a, *low_b, *high_b;
    if (extent(a, &low_a, &high_a) < 0 || extent(b, &low_b, &high_b) < 0)
        return 0;
    return high_a <= low_b || high_b <= low_a || low_a == high_a || low_b == high_b;
}

static int dims_hold(const TensorSpec *spec, const int64_t *sizes, const int64_t *strides, int64_t *symbols)
{
    for (int64_t i = 0; i < 2 * spec->ndim; i++) {
        int64_t seen = i < spec->ndim ? sizes[i] : strides[i - spec->ndim];
        const Dim *dim = &spec->dims[i];
        if (dim->kind == DIM_BIND)
            symbols[dim->value] = seen;
        else if ((dim->kind == DIM_EXACT && dim->value != seen) || (dim->kind == DIM_SAME && symbols[dim->value] != seen))
            return 0;
    }
    return 1;
}

static inline int tensor_holds(const TensorSpec *spec, PyObject *value, int64_t *symbols)
{
    int64_t ndim;
    const int64_t *sizes, *strides;
    if (Py_TYPE(value) != spec->type)
        return 0;
    TensorHandle handle = tw_handle(value);
    if (tw_keys(tw_impl(handle)) != spec->keys || tw_dtype(handle) != spec->dtype || tw_device(handle) != spec->device)
        return 0;
    int requires_grad = tw_requires_grad(value);
    if (UNLIKELY(requires_grad < 0))
        PyErr_Clear();
    if (requires_grad != spec->requires_grad || tw_has_tangent(handle) || tw_geometry(handle, &ndim, &sizes, &strides) || ndim != spec->ndim)
        return 0;
    if (spec->exact)
        return memcmp(sizes, spec->numbers, 8 * (size_t)ndim) == 0 && memcmp(strides, spec->numbers + ndim, 8 * (size_t)ndim) == 0;
    return dims_hold(spec, sizes, strides, symbols);
}

static int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

enum { PUSH_CONST, PUSH_SYMBOL, ADD, MUL, FLOORDIV, MOD, MAX, MIN };
#define STACK 64

/* 1 and the value, or 0 where a division by zero or an overflow leaves none */
static int evaluate(const int64_t *words, Py_ssize_t count, const int64_t *symbols, int64_t *result)
{
    int64_t stack[STACK];
    int top = 0;
    for (Py_ssize_t i = 0; i < count; i += 2) {
        int64_t operand = words[i + 1];
        if (words[i] == PUSH_CONST || words[i] == PUSH_SYMBOL) {
            stack[top++] = words[i] == PUSH_CONST ? operand : symbols[operand];
            continue;
        }
        int64_t right = stack[--top], left = stack[top - 1], *into = &stack[top - 1];
        switch (words[i]) {
        case ADD: if (__builtin_add_overflow(left, right, into)) return 0; break;
        case MUL: if (__builtin_mul_overflow(left, right, into)) return 0; break;
        case FLOORDIV: if (right == 0) return 0; *into = floor_divide(left, right); break;
        case MOD: if (right == 0) return 0; *into = left - floor_divide(left, right) * right; break;
        case MAX: *into = left > right ? left : right; break;
        default: *into = left < right ? left : right; break;
        }
    }
    *result = stack[0];
    return 1;
}

/* An exact int in the range that traced sizes have (shapes/symbolic.py) gives the symbol its value. */
static int binds_size(PyObject *value, int64_t *symbol)
{
    int overflow;
    if (!PyLong_CheckExact(value))
        return 0;
    *symbol = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow && *symbol >= 2 && *symbol < INT64_C(1) << 62;
}

static int relation_holds(const Relation *relation, const int64_t *symbols)
{
    int64_t left, right;
    if (!evaluate(relation->words, relation->left, symbols, &left) || !evaluate(relation->words + relation->left, relation->right, symbols, &right))
        return 0;
    switch (relation->operator) {
    case Py_EQ: return left == right;
    case Py_NE: return left != right;
    case Py_LT: return left < right;
    default: return left <= right;
    }
}

/* 1 where the check holds. No exception is left; only CHECK_PYTHON and what CHECK_TYPE_LOOKUP asks run Python. CHECK_HAS_NOT is guard.c's. */
int tw_run_check(const Step *step, PyObject *const *registers, int64_t *symbols)
{
    if (step->code == CHECK_TENSOR)
        return tensor_holds(step->tensor, registers[step->a], symbols);
    if (step->code == CHECK_RELATION)
        return relation_holds(step->relation, symbols);
    PyObject *value = registers[step->a], *arg = step->arg;
    switch (step->code) {
    case CHECK_TYPE: return (PyObject *)Py_TYPE(value) == arg;
    case CHECK_IS: return value == arg;
    case CHECK_IS_WEAK: return PyWeakref_GET_OBJECT(arg) == value && value != Py_None;
    case CHECK_EQUAL: return same_constant(value, arg);
    case CHECK_LENGTH: return length_of(value) == step->b;
    case CHECK_SIZE: return binds_size(value, &symbols[step->b]);
    case CHECK_DICT_KEYS: return has_keys(value, arg);
    case CHECK_ABSENT: return lacks(value, arg);
    case CHECK_CODE: return has_code(value, arg);
    case CHECK_SAME: return value == registers[step->b];
    case CHECK_NOT_SAME: return value != registers[step->b];
    case CHECK_NO_OVERLAP: return apart(value, registers[step->b]);
    case CHECK_TYPE_LOOKUP: return finds_in_type(value, arg);
    case CHECK_ORDERED_KEYS: return has_order(value, arg);
    case CHECK_TRUTH: return is_true(value) == step->b;
    case CHECK_PYTHON: return python_says(arg, value);
    default: return 0;
    }
}

static int parse_dim(PyObject *text, Dim *dim, int symbols)
{
    if (!PyArg_ParseTuple(text, "iL", &dim->kind, &dim->value))
        return -1;
    if (dim->kind < DIM_EXACT || dim->kind > DIM_SAME || (dim->kind >= DIM_BIND && (dim->value < 0 || dim->value >= symbols))) {
        PyErr_SetString(PyExc_ValueError, "a dim is (kind, value) with a symbol that exists");
        return -1;
    }
    return 0;
}

static int parse_dims(TensorSpec *spec, PyObject *dims, int symbols)
{
    Py_ssize_t count = PyTuple_GET_SIZE(dims);
    spec->ndim = count / 2;
    spec->exact = 1;
    spec->dims = PyMem_Calloc((size_t)count + 1, sizeof *spec->dims);
    if (!spec->dims)
        return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (parse_dim(PyTuple_GET_ITEM(dims, i), &spec->dims[i], symbols) < 0)
            return -1;
        spec->exact &= spec->dims[i].kind == DIM_EXACT;
        spec->numbers[i] = spec->dims[i].value;
    }
    return 0;
}

/* (type, dtype code, device code, requires_grad, key set, (dim, …) of sizes then strides); a dim is (kind, value) */
TensorSpec *tw_parse_tensor(PyObject *arg, int symbols)
{
    PyObject *type, *dims;
    TensorSpec head = {0};
    unsigned long long keys;
    if (!PyTuple_Check(arg))
        return (TensorSpec *)PyErr_Format(PyExc_TypeError, "a tensor check takes a tuple");
    if (!PyArg_ParseTuple(arg, "O!iipKO!", &PyType_Type, &type, &head.dtype, &head.device, &head.requires_grad, &keys, &PyTuple_Type, &dims))
        return NULL;
    head.type = (PyTypeObject *)type; /* kept alive by the step's argument */
    head.keys = keys;
    if (!tw_tensors_ready() || !PyType_IsSubtype(head.type, tw_tensor_base))
        return (TensorSpec *)PyErr_Format(PyExc_ValueError, "a tensor check needs a tensor type, and the core bound to torch");
    TensorSpec *spec = PyMem_Malloc(sizeof head + sizeof(int64_t) * (size_t)PyTuple_GET_SIZE(dims));
    if (!spec)
        return (TensorSpec *)PyErr_NoMemory();
    *spec = head;
    if (parse_dims(spec, dims, symbols) == 0)
        return spec;
    tw_free_tensor(spec);
    return NULL;
}

void tw_free_tensor(TensorSpec *spec)
{
    if (!spec)
        return;
    PyMem_Free(spec->dims);
    PyMem_Free(spec);
}

/* Copies pairs of words and proves that they are a postfix program that leaves one value on a short stack. */
static int parse_postfix(PyObject *program, int64_t *words, int symbols)
{
    int depth = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(program); i++)
        words[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(program, i));
    if (PyErr_Occurred())
        return -1;
    for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(program); i += 2) {
        int fits = words[i] == PUSH_CONST || (words[i] == PUSH_SYMBOL && words[i + 1] >= 0 && words[i + 1] < symbols) || (words[i] >= ADD && words[i] <= MIN && depth >= 2);
        depth += words[i] <= PUSH_SYMBOL ? 1 : -1;
        if (!fits || depth > STACK)
            return PyErr_SetString(PyExc_ValueError, "not a postfix program"), -1;
    }
    return depth == 1 && PyTuple_GET_SIZE(program) % 2 == 0 ? 0 : (PyErr_SetString(PyExc_ValueError, "not a postfix program"), -1);
}

/* (left postfix, operator, right postfix); the operator as in PyObject_RichCompare: <, <=, == or != */
Relation *tw_parse_relation(PyObject *arg, int symbols)
{
    PyObject *left, *right;
    int operator;
    if (!PyTuple_Check(arg) || !PyArg_ParseTuple(arg, "O!iO!", &PyTuple_Type, &left, &operator, &PyTuple_Type, &right))
        return PyErr_Occurred() ? NULL : (Relation *)PyErr_Format(PyExc_TypeError, "a relation takes a tuple");
    Py_ssize_t count = PyTuple_GET_SIZE(left) + PyTuple_GET_SIZE(right);
    Relation *relation = PyMem_Calloc(1, sizeof *relation + sizeof(int64_t) * (size_t)count);
    if (!relation)
        return (Relation *)PyErr_NoMemory();
    *relation = (Relation){operator, PyTuple_GET_SIZE(left), PyTuple_GET_SIZE(right), (int64_t *)(relation + 1)};
    if (parse_postfix(left, relation->words, symbols) == 0 && parse_postfix(right, relation->words + relation->left, symbols) == 0)
        return relation;
    PyMem_Free(relation);
    return NULL;
}
