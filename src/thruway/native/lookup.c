/* Attribute lookup that says how long its answer lasts, and the nodes that tell cheaply whether it still does.
   A dict's version tag is unique in the process, so (live dict, same tag) proves the same contents; likewise for types. */
#include "guard.h"

static PyTypeObject *module_type;          /* torch.nn.Module */
static PyObject *module_getattr;           /* its __getattr__, whose meaning is known: _parameters, _buffers, _modules */
static PyObject *object_getattribute;
static PyObject *name_getattr, *name_getattribute, *name_dict, *sub_names[3];

#if PY_VERSION_HEX >= 0x030E0000
#error "dict version tags are gone in Python 3.14"
#endif
static inline uint64_t dict_tag(PyObject *dict) { return ((PyDictObject *)dict)->ma_version_tag; }

static inline unsigned type_tag(PyTypeObject *type)
{
    return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
}

PyObject **tw_dict_slot(PyObject *base)
{
    return PyType_Check(base) ? NULL : _PyObject_GetDictPtr(base);
}

/* whether plain lookup (type, instance dict, type again) is what this type does first */
static int looks_up_plainly(PyTypeObject *type)
{
    if (type->tp_getattro == PyObject_GenericGetAttr || type == &PyModule_Type)
        return 1;
    return module_type && type->tp_getattro == module_type->tp_getattro && _PyType_Lookup(type, name_getattribute) == object_getattribute;
}

static int is_module_like(PyTypeObject *type)
{
    return module_type && type->tp_getattro == module_type->tp_getattro && _PyType_Lookup(type, name_getattr) == module_getattr;
}

static PyObject *ask_python(PyObject *base, PyObject *name, Found *found)
{
    *found = FRESH;
    PyObject *value = PyObject_GetAttr(base, name);
    if (!value)
        PyErr_Clear();
    return value;
}

static PyObject *from_descriptor(PyObject *base, PyObject *descr, PyObject *name, Found *found)
{
    PyTypeObject *kind = Py_TYPE(descr);
    *found = HELD;
    if (!kind->tp_descr_get)
        return descr;
    PyObject *value = ask_python(base, name, found);
    if (value && kind == &PyStaticMethod_Type) { /* the function lives in the static method, which lives in the type */
        Py_DECREF(value);
        *found = HELD;
    } else if (value && PyMethod_Check(value) && (kind == &PyFunction_Type || kind == &PyClassMethod_Type)) {
        *found = METHOD;
    }
    return value;
}

static PyObject *attribute_of_type(PyTypeObject *base, PyObject *name, Found *found)
{
    PyTypeObject *meta = Py_TYPE(base);
    if (meta->tp_getattro != PyType_Type.tp_getattro || _PyType_Lookup(meta, name))
        return ask_python((PyObject *)base, name, found);
    PyObject *descr = _PyType_Lookup(base, name);
    *found = descr ? HELD : MISSING;
    if (!descr || Py_TYPE(descr) == &PyFunction_Type)
        return descr;
    return from_descriptor((PyObject *)base, descr, name, found);
}

static PyObject *attribute_of_module(PyObject *base, PyObject *dict, PyObject *name, Found *found)
{
    for (int i = 0; i < 3; i++) {
        PyObject *sub = dict ? PyDict_GetItemWithError(dict, sub_names[i]) : NULL;
        if (!sub)
            continue;
        if (!PyDict_Check(sub))
            return ask_python(base, name, found);
        PyObject *value = PyDict_GetItemWithError(sub, name);
        if (value) {
            *found = HELD;
            return value;
        }
    }
    *found = MISSING;
    return NULL;
}

/* base.__dict__ through the ordinary descriptor: the dict itself, made where the object had none yet */
static PyObject *own_dict(PyObject *base, PyObject *name, Found *found)
{
    PyObject *value = ask_python(base, name, found), **slot = tw_dict_slot(base);
    if (value && slot && *slot == value) {
        Py_DECREF(value);
        *found = HELD;
    }
    return value;
}

/* getattr(base, name). The result is borrowed for HELD and a new reference for METHOD and FRESH; no exception is left. */
PyObject *tw_attribute(PyObject *base, PyObject *name, Found *found)
{
    PyTypeObject *type = Py_TYPE(base);
    if (PyType_Check(base))
        return attribute_of_type((PyTypeObject *)base, name, found);
    if (!looks_up_plainly(type))
        return ask_python(base, name, found);
    PyObject *descr = _PyType_Lookup(type, name);
    if (descr && Py_TYPE(descr) == &PyGetSetDescr_Type && PyUnicode_Compare(name, name_dict) == 0)
        return own_dict(base, name, found);
    if (descr && Py_TYPE(descr)->tp_descr_set)
        return ask_python(base, name, found);
    PyObject **slot = tw_dict_slot(base);
    PyObject *value = slot && *slot ? PyDict_GetItemWithError(*slot, name) : NULL;
    *found = HELD;
    if (value)
        return value;
    if (descr)
        return from_descriptor(base, descr, name, found);
    if (type->tp_getattro == PyObject_GenericGetAttr) {
        *found = MISSING;
        return NULL;
    }
    return is_module_like(type) ? attribute_of_module(base, slot ? *slot : NULL, name, found) : ask_python(base, name, found);
}

static void open_subs(Node *node)
{
    node->has_subs = 1;
    for (int i = 0; i < 3; i++) {
        PyObject *sub = node->dict ? PyDict_GetItemWithError(node->dict, sub_names[i]) : NULL;
        node->subs[i] = sub && PyDict_Check(sub) ? sub : NULL;
        node->sub_tags[i] = node->subs[i] ? dict_tag(sub) : 0;
        node->usable &= !sub || PyDict_Check(sub);
    }
}

static void open_attributes(Node *node, PyObject *base)
{
    PyTypeObject *type = Py_TYPE(base);
    _PyType_Lookup(type, name_getattr); /* gives the type a version tag */
    node->type = type;
    node->type_tag = type_tag(type);
    node->usable &= node->type_tag != 0;
    if (PyType_Check(base)) {
        _PyType_Lookup((PyTypeObject *)base, name_getattr);
        node->as_type = (PyTypeObject *)base;
        node->as_tag = type_tag(node->as_type);
        node->usable &= node->as_tag != 0;
        return;
    }
    PyObject **slot = tw_dict_slot(base);
    if (!slot)
        return;
    node->usable &= type->tp_itemsize == 0 && (char *)slot != (char *)base; /* else the place depends on the object's length */
    node->dict_at = (char *)slot - (char *)base;
    node->dict = *slot;
    node->dict_tag = node->dict ? dict_tag(node->dict) : 0;
    if (is_module_like(type))
        open_subs(node);
}

/* Remembers what lookups through `base` rely on; `items`: the base is a dict whose own contents are read. */
void tw_open_node(Node *node, PyObject *base, int items)
{
    if (!node->opened)
        node->opened = node->usable = 1;
    if (items && !node->items) {
        node->items = base;
        node->items_tag = PyDict_Check(base) ? dict_tag(base) : 0;
        node->usable &= PyDict_Check(base);
    } else if (!items && !node->type) {
        open_attributes(node, base);
    }
}

int tw_node_holds(const Node *node, PyObject *base)
{
    if (node->items && (base != node->items || dict_tag(base) != node->items_tag))
        return 0;
    if (!node->type)
        return 1;
    if (Py_TYPE(base) != node->type || type_tag(node->type) != node->type_tag)
        return 0;
    if (node->as_type)
        return base == (PyObject *)node->as_type && type_tag(node->as_type) == node->as_tag;
    if (!node->dict_at)
        return 1;
    PyObject *dict = *(PyObject **)((char *)base + node->dict_at);
    if (dict != node->dict || (dict && dict_tag(dict) != node->dict_tag))
        return 0;
    if (node->has_subs)
        for (int i = 0; i < 3; i++)
            if (node->subs[i] && dict_tag(node->subs[i]) != node->sub_tags[i])
                return 0;
    return 1;
}

/* bind_module(torch.nn.Module): the one class whose __getattr__ is known */
static PyObject *bind_module(PyObject *self, PyObject *type)
{
    if (!PyType_Check(type))
        return PyErr_Format(PyExc_TypeError, "expected a class");
    Py_XSETREF(module_getattr, Py_XNewRef(_PyType_Lookup((PyTypeObject *)type, name_getattr)));
    Py_XSETREF(module_type, (PyTypeObject *)Py_NewRef(type));
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"bind_module", bind_module, METH_O, "Takes torch.nn.Module, whose attribute lookup is known."},
    {NULL, NULL, 0, NULL},
};

int tw_lookup_init(PyObject *module)
{
    static const char *subs[3] = {"_parameters", "_buffers", "_modules"};
    name_getattr = PyUnicode_InternFromString("__getattr__");
    name_getattribute = PyUnicode_InternFromString("__getattribute__");
    name_dict = PyUnicode_InternFromString("__dict__");
    for (int i = 0; i < 3; i++)
        sub_names[i] = PyUnicode_InternFromString(subs[i]);
    if (!name_getattr || !name_getattribute || !name_dict || !sub_names[0] || !sub_names[1] || !sub_names[2])
        return -1;
    object_getattribute = Py_XNewRef(_PyType_Lookup(&PyBaseObject_Type, name_getattribute));
    return PyModule_AddFunctions(module, methods);
}
