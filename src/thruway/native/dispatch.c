/* Entry: guards, a graph and what follows it. Compiled: the callable that finds the entry of a call, or asks `miss` for one.

   Entries are a tuple that is replaced, never edited, so a call needs no lock: it holds the tuple that it found. */
#include "dispatch.h"
#include <stddef.h>
#include <structmember.h>

#define STACK_VALUES 64

/* An array on the stack where it is short, else on the heap. */
typedef struct { PyObject **items, *few[STACK_VALUES]; } Values;

static int open_values(Values *values, Py_ssize_t count)
{
    values->items = count <= STACK_VALUES ? values->few : PyMem_Malloc(sizeof(PyObject *) * (size_t)count);
    return values->items ? 0 : (PyErr_NoMemory(), -1);
}

static void close_values(Values *values)
{
    if (values->items != values->few)
        PyMem_Free(values->items);
}

static void release(PyObject **items, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++)
        Py_XDECREF(items[i]);
}

/* ---- Entry */

int tw_entry_matches(Entry *entry, const TorchState *state, PyObject *function, PyObject *const *locals, Py_ssize_t nlocals, PyObject **inputs)
{
    if (memcmp(state, &entry->state, sizeof *state) != 0 || !tw_guards_check(entry->guards, function, locals, nlocals, inputs))
        return 0;
    entry->hits++;
    return 1;
}

/* finish(*locals, *closure cells, *outputs) */
static PyObject *call_finish(Entry *entry, PyObject *function, PyObject *const *locals, Py_ssize_t nlocals, PyObject *outputs)
{
    PyObject *closure = PyFunction_GET_CLOSURE(function);
    Py_ssize_t count = outputs ? PySequence_Fast_GET_SIZE(outputs) : 0, cells = closure ? PyTuple_GET_SIZE(closure) : 0;
    Values values;
    if (open_values(&values, nlocals + cells + count) < 0)
        return NULL;
    memcpy(values.items, locals, sizeof(PyObject *) * (size_t)nlocals);
    for (Py_ssize_t i = 0; i < cells; i++)
        values.items[nlocals + i] = PyTuple_GET_ITEM(closure, i);
    if (count)
        memcpy(values.items + nlocals + cells, PySequence_Fast_ITEMS(outputs), sizeof(PyObject *) * (size_t)count);
    int before = entry->hooked > 0 ? tw_hook_enter(entry->hooked) : 0;
    PyObject *result = PyObject_Vectorcall(entry->finish, values.items, (size_t)(nlocals + cells + count), NULL);
    if (entry->hooked > 0)
        tw_hook_exit(before);
    close_values(&values);
    return result;
}

/* the graph's outputs as a tuple (a list is taken too), or the only one */
static PyObject *call_graph(Entry *entry, PyObject **inputs)
{
    Py_ssize_t count = tw_guards_inputs(entry->guards);
    PyObject *graph = Py_NewRef(entry->graph); /* the call may put another in its place */
    PyObject *outputs = PyObject_Vectorcall(graph, inputs, (size_t)count, NULL);
    Py_DECREF(graph);
    release(inputs, count);
    if (!outputs || PyTuple_CheckExact(outputs) || PyList_CheckExact(outputs))
        return outputs;
    PyErr_Format(PyExc_TypeError, "a graph returned %.80s instead of a tuple", Py_TYPE(outputs)->tp_name);
    Py_DECREF(outputs);
    return NULL;
}

static PyObject *only_output(PyObject *outputs)
{
    if (PySequence_Fast_GET_SIZE(outputs) == 1)
        return Py_NewRef(PySequence_Fast_GET_ITEM(outputs, 0));
    PyErr_Format(PyExc_ValueError, "a graph returned %zd outputs instead of one", PySequence_Fast_GET_SIZE(outputs));
    return NULL;
}

static PyObject *finish_entry(Entry *entry, PyObject *function, PyObject *const *locals, Py_ssize_t nlocals, PyObject *outputs)
{
    if (entry->finish)
        return call_finish(entry, function, locals, nlocals, outputs);
    return entry->single_output ? only_output(outputs) : PySequence_Tuple(outputs);
}

/* A frame of the code that capture writes, or of what that calls to jump on. */
static int is_own_frame(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    const char *file = PyUnicode_AsUTF8(code->co_filename);
    int own = file && (!strncmp(file, "<thruway ", 9) || strstr(file, "/thruway/capture/resume.py"));
    Py_DECREF(code);
    return own;
}

/* An error goes on as if the user's own frames had called each other. */
static void hide_own_frames(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    while (traceback && is_own_frame(((PyTracebackObject *)traceback)->tb_frame))
        Py_SETREF(traceback, Py_XNewRef((PyObject *)((PyTracebackObject *)traceback)->tb_next));
    PyErr_Restore(type, value, traceback);
}

/* The hook is off, but for `finish` of a hooked entry. */
PyObject *tw_run_entry(Entry *entry, PyObject *function, PyObject *const *locals, Py_ssize_t nlocals, PyObject **inputs)
{
    int depth = tw_hook_pause();
    PyObject *outputs = NULL, *result = NULL;
    if (entry->graph)
        outputs = call_graph(entry, inputs);
    else
        release(inputs, tw_guards_inputs(entry->guards));
    if (outputs || !entry->graph)
        result = finish_entry(entry, function, locals, nlocals, outputs);
    if (!result && entry->finish)
        hide_own_frames();
    Py_XDECREF(outputs);
    tw_hook_resume(depth);
    return result;
}

void tw_tell_failed(Entry *entry, PyObject *error)
{
    PyObject *told = entry->failed ? PyObject_CallOneArg(entry->failed, error) : NULL;
    if (!told && entry->failed && PyErr_ExceptionMatches(PyExc_RecursionError)) /* no room to be told: the next failure will do */
        PyErr_Clear();
    else if (!told && entry->failed)
        PyErr_WriteUnraisable(entry->failed);
    Py_XDECREF(told);
}

static PyObject *none_to_null(PyObject *value) { return value == Py_None ? NULL : Py_NewRef(value); }

/* Entry(guards, state, graph, finish=None, single_output=False, kept=(), hooked=0, failed=None, below=0) */
static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"guards", "state", "graph", "finish", "single_output", "kept", "hooked", "failed", "below", NULL};
    PyObject *guards, *state, *graph, *finish = Py_None, *kept = NULL, *failed = Py_None;
    int single = 0, hooked = 0, below = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!SO|OpOiOi", names, &tw_guards_type, &guards, &state, &graph, &finish, &single, &kept, &hooked, &failed,
                                     &below))
        return NULL;
    if ((size_t)PyBytes_GET_SIZE(state) != sizeof(TorchState))
        return PyErr_Format(PyExc_ValueError, "state is what read_state() gives");
    Entry *entry = (Entry *)type->tp_alloc(type, 0);
    if (!entry)
        return NULL;
    entry->guards = (GuardProgram *)Py_NewRef(guards);
    entry->graph = none_to_null(graph);
    entry->finish = none_to_null(finish);
    entry->kept = kept ? Py_NewRef(kept) : PyTuple_New(0);
    entry->failed = none_to_null(failed);
    entry->single_output = single;
    entry->hooked = hooked;
    entry->below = below;
    memcpy(&entry->state, PyBytes_AS_STRING(state), sizeof(TorchState));
    return (PyObject *)entry;
}

static int entry_traverse(PyObject *self, visitproc visit, void *arg)
{
    Entry *entry = (Entry *)self;
    Py_VISIT(entry->guards);
    Py_VISIT(entry->graph);
    Py_VISIT(entry->finish);
    Py_VISIT(entry->kept);
    Py_VISIT(entry->failed);
    return 0;
}

/* `guards` stays: an entry without it must not run, and it cannot be in a cycle that its own clear does not break. */
static int entry_clear(PyObject *self)
{
    Entry *entry = (Entry *)self;
    Py_CLEAR(entry->graph);
    Py_CLEAR(entry->finish);
    Py_CLEAR(entry->kept);
    Py_CLEAR(entry->failed);
    return 0;
}

static void entry_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    entry_clear(self);
    Py_CLEAR(((Entry *)self)->guards);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *entry_state(PyObject *self, void *unused)
{
    return PyBytes_FromStringAndSize((char *)&((Entry *)self)->state, sizeof(TorchState));
}

static PyMemberDef entry_members[] = {
    {"guards", T_OBJECT, offsetof(Entry, guards), READONLY, "the GuardProgram"},
    {"graph", T_OBJECT, offsetof(Entry, graph), 0, "callable of the inputs, or None; another one that gives the same may take its place"},
    {"finish", T_OBJECT, offsetof(Entry, finish), READONLY, "callable of the locals, the closure cells and the graph's outputs, or None"},
    {"kept", T_OBJECT, offsetof(Entry, kept), READONLY, "objects that live as long as the entry"},
    {"single_output", T_BOOL, offsetof(Entry, single_output), READONLY, "the graph's only output is the result"},
    {"hooked", T_INT, offsetof(Entry, hooked), READONLY, "the region in which the frame hook is on while user code runs; 0: as around the call; -1: off"},
    {"below", T_INT, offsetof(Entry, below), READONLY, "the region whose frames it answers, on a code object"},
    {"hits", T_LONG, offsetof(Entry, hits), 0, "calls that this entry answered"},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef entry_getset[] = {
    {"state", entry_state, NULL, "torch's modes that this entry is for, as read_state() gives them", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject tw_entry_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "thruway.native._core.Entry",
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_doc = "Entry(guards, state, graph, finish=None, single_output=False, kept=(), hooked=0, failed=None, below=0)\n\nWithout graph and finish the original function runs. "
              "failed(error) hears of a region that gave up where the function did not fail.",
    .tp_new = entry_new,
    .tp_dealloc = entry_dealloc,
    .tp_traverse = entry_traverse,
    .tp_clear = entry_clear,
    .tp_members = entry_members,
    .tp_getset = entry_getset,
};

/* ---- Compiled */

typedef struct {
    PyObject_HEAD
    PyFunctionObject *function;
    PyObject *code;              /* what `entries` were made for; a function may get another code */
    PyObject *entries, *miss, *dict, *weak;
    Py_ssize_t simple_count;     /* number of arguments where a call by position binds them all, or -1 */
    Py_ssize_t slots;            /* number of locals that hold arguments */
    Py_ssize_t last;             /* entry that answered last */
    PyObject *after; /* called once, when a call that missed is over */
    char eager;
    long misses;
    vectorcallfunc vectorcall;
} Compiled;

/* One call as it came, and its arguments as the frame's first locals once they are bound. */
typedef struct {
    PyObject *const *args;
    size_t nargsf;
    PyObject *kwnames;
    PyObject *const *locals;
    Py_ssize_t nlocals;
} Arguments;

static PyObject *run_eager(Compiled *self, const Arguments *given, int hooked)
{
    return tw_hook_call((PyObject *)self->function, given->args, given->nargsf, given->kwnames, hooked);
}

/* Takes the function's present code: entries of another code go. */
static void adopt_code(Compiled *self)
{
    PyCodeObject *code = (PyCodeObject *)self->function->func_code;
    int rest = code->co_flags & (CO_VARARGS | CO_VARKEYWORDS);
    self->simple_count = rest || code->co_kwonlyargcount ? -1 : code->co_argcount;
    self->slots = code->co_argcount + code->co_kwonlyargcount + !!(rest & CO_VARARGS) + !!(rest & CO_VARKEYWORDS);
    PyObject *old = self->entries;
    self->entries = PyTuple_New(0);
    self->last = 0;
    Py_XSETREF(self->code, Py_NewRef(code));
    Py_XDECREF(old);
}

/* -1 where no parameter that may be given by name has this one */
static Py_ssize_t find_parameter(PyCodeObject *code, PyObject *name)
{
    Py_ssize_t end = code->co_argcount + code->co_kwonlyargcount;
    for (Py_ssize_t i = code->co_posonlyargcount; i < end; i++)
        if (PyTuple_GET_ITEM(code->co_localsplusnames, i) == name)
            return i;
    for (Py_ssize_t i = code->co_posonlyargcount; i < end; i++)
        if (PyUnicode_Compare(PyTuple_GET_ITEM(code->co_localsplusnames, i), name) == 0)
            return i;
    return -1;
}

/* The three steps of binding; each gives 0 where the call does not fit the signature. `slots` come in NULL. */
static int bind_positional(PyCodeObject *code, const Arguments *given, PyObject **slots)
{
    Py_ssize_t count = PyVectorcall_NARGS(given->nargsf), fixed = Py_MIN(count, code->co_argcount);
    for (Py_ssize_t i = 0; i < fixed; i++)
        slots[i] = Py_NewRef(given->args[i]);
    if (!(code->co_flags & CO_VARARGS))
        return count <= code->co_argcount;
    PyObject *rest = slots[code->co_argcount + code->co_kwonlyargcount] = PyTuple_New(count - fixed);
    for (Py_ssize_t i = fixed; rest && i < count; i++)
        PyTuple_SET_ITEM(rest, i - fixed, Py_NewRef(given->args[i]));
    return rest != NULL;
}

static int bind_keywords(PyCodeObject *code, const Arguments *given, PyObject **slots)
{
    PyObject *const *values = given->args + PyVectorcall_NARGS(given->nargsf);
    PyObject **rest = NULL;
    if (code->co_flags & CO_VARKEYWORDS) {
        rest = &slots[code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS)];
        if (!(*rest = PyDict_New()))
            return 0;
    }
    for (Py_ssize_t i = 0; given->kwnames && i < PyTuple_GET_SIZE(given->kwnames); i++) {
        PyObject *name = PyTuple_GET_ITEM(given->kwnames, i);
        Py_ssize_t at = find_parameter(code, name);
        if (at < 0 ? !rest || PyDict_SetItem(*rest, name, values[i]) < 0 : slots[at] != NULL)
            return 0;
        if (at >= 0)
            slots[at] = Py_NewRef(values[i]);
    }
    return 1;
}

static int bind_defaults(PyFunctionObject *function, PyCodeObject *code, PyObject **slots)
{
    Py_ssize_t defaults = function->func_defaults ? PyTuple_GET_SIZE(function->func_defaults) : 0, first = code->co_argcount - defaults;
    for (Py_ssize_t i = 0; i < code->co_argcount; i++)
        if (!slots[i] && (i < first || !(slots[i] = Py_NewRef(PyTuple_GET_ITEM(function->func_defaults, i - first)))))
            return 0;
    for (Py_ssize_t i = code->co_argcount; i < code->co_argcount + code->co_kwonlyargcount; i++) {
        PyObject *name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
        if (!slots[i] && function->func_kwdefaults)
            slots[i] = Py_XNewRef(PyDict_GetItemWithError(function->func_kwdefaults, name));
        if (!slots[i])
            return 0;
    }
    return 1;
}

/* The arguments as the frame's first locals, new references; 0 where they do not fit (calling the function then raises the TypeError). */
static int bind_arguments(Compiled *self, const Arguments *given, PyObject **slots)
{
    PyCodeObject *code = (PyCodeObject *)self->code;
    memset(slots, 0, sizeof(PyObject *) * (size_t)self->slots);
    int fits = bind_positional(code, given, slots) && bind_keywords(code, given, slots) && bind_defaults(self->function, code, slots);
    if (!fits)
        PyErr_Clear();
    return fits;
}

/* The region gave up with the error that is set: the function itself answers, without regions below, which could only find the same error. Where it
   does not fail, the region is at fault. */
static PyObject *run_after_failure(Compiled *self, Entry *entry, const Arguments *given)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyObject *result = run_eager(self, given, TW_HOOK_OFF);
    if (result)
        tw_tell_failed(entry, error);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return result;
}

/* One entry on bound arguments: its result, NULL with an exception, or NULL and *matched = 0. */
static PyObject *try_entry(Compiled *self, Entry *entry, const TorchState *state, const Arguments *given, int *matched)
{
    Values inputs;
    if (open_values(&inputs, tw_guards_inputs(entry->guards)) < 0)
        return *matched = 1, NULL;
    *matched = tw_entry_matches(entry, state, (PyObject *)self->function, given->locals, given->nlocals, inputs.items);
    PyObject *result = NULL;
    if (*matched && tw_runs_eager(entry)) {
        release(inputs.items, tw_guards_inputs(entry->guards));
        result = run_eager(self, given, entry->hooked);
    } else if (*matched) {
        result = tw_run_entry(entry, (PyObject *)self->function, given->locals, given->nlocals, inputs.items);
        if (UNLIKELY(!result) && PyErr_ExceptionMatches(tw_region_failed))
            result = run_after_failure(self, entry, given);
    }
    close_values(&inputs);
    return result;
}

/* The entry that answered last goes first. */
static PyObject *try_entries(Compiled *self, PyObject *entries, const TorchState *state, const Arguments *given, int *matched)
{
    Py_ssize_t count = PyTuple_GET_SIZE(entries), last = self->last < count ? self->last : 0;
    *matched = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t at = i == 0 ? last : i - (i <= last);
        PyObject *result = try_entry(self, (Entry *)PyTuple_GET_ITEM(entries, at), state, given, matched);
        if (*matched) {
            self->last = at;
            return result;
        }
    }
    return NULL;
}

static PyObject *keyword_dict(const Arguments *given)
{
    PyObject *dict = PyDict_New();
    for (Py_ssize_t i = 0; dict && given->kwnames && i < PyTuple_GET_SIZE(given->kwnames); i++)
        if (PyDict_SetItem(dict, PyTuple_GET_ITEM(given->kwnames, i), given->args[PyVectorcall_NARGS(given->nargsf) + i]) < 0)
            Py_CLEAR(dict);
    return dict;
}

/* a new reference to an Entry or None; NULL with an exception */
static PyObject *ask_miss(Compiled *self, const Arguments *given)
{
    Py_ssize_t count = PyVectorcall_NARGS(given->nargsf);
    PyObject *args = PyTuple_New(count), *kwargs = keyword_dict(given), *entry = NULL;
    for (Py_ssize_t i = 0; args && i < count; i++)
        PyTuple_SET_ITEM(args, i, Py_NewRef(given->args[i]));
    if (args && kwargs) {
        int depth = tw_hook_pause();
        entry = PyObject_CallFunctionObjArgs(self->miss, self, args, kwargs, NULL);
        tw_hook_resume(depth);
    }
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    if (entry && entry != Py_None && !PyObject_TypeCheck(entry, &tw_entry_type)) {
        PyErr_Format(PyExc_TypeError, "miss returned %.80s instead of an Entry or None", Py_TYPE(entry)->tp_name);
        Py_CLEAR(entry);
    }
    return entry;
}

/* Calls `after`, once, whatever the call came to. */
static void tell_after(Compiled *self)
{
    PyObject *type, *error, *traceback, *after = self->after;
    PyErr_Fetch(&type, &error, &traceback);
    self->after = NULL;
    PyObject *told = PyObject_CallNoArgs(after);
    if (!told)
        PyErr_WriteUnraisable(after);
    Py_XDECREF(told);
    Py_DECREF(after);
    PyErr_Restore(type, error, traceback);
}

static PyObject *missed(Compiled *self, const TorchState *state, const Arguments *given)
{
    self->misses++;
    PyObject *entry = ask_miss(self, given);
    if (!entry)
        return NULL;
    int matched = 0;
    PyObject *result = entry == Py_None ? NULL : try_entry(self, (Entry *)entry, state, given, &matched);
    Py_DECREF(entry);
    if (!matched)
        result = run_eager(self, given, TW_HOOK_OFF);
    if (UNLIKELY(self->after != NULL))
        tell_after(self);
    return result;
}

static PyObject *call_bound(Compiled *self, const Arguments *given)
{
    TorchState state;
    int matched;
    if (tw_read_state(&state) < 0)
        return NULL;
    PyObject *entries = Py_NewRef(self->entries);
    PyObject *result = try_entries(self, entries, &state, given, &matched);
    Py_DECREF(entries);
    return matched ? result : missed(self, &state, given);
}

static PyObject *call_unbound(Compiled *self, Arguments *given)
{
    Values slots;
    if (open_values(&slots, self->slots) < 0)
        return NULL;
    given->nlocals = self->slots; /* kept here: the function may get another code during the call */
    given->locals = slots.items;
    PyObject *result = bind_arguments(self, given, slots.items) ? call_bound(self, given) : run_eager(self, given, 0);
    release(slots.items, given->nlocals);
    close_values(&slots);
    return result;
}

static PyObject *compiled_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Compiled *self = (Compiled *)object;
    Arguments given = {args, nargsf, kwnames, args, PyVectorcall_NARGS(nargsf)};
    if (UNLIKELY(self->eager))
        return run_eager(self, &given, 0);
    if (UNLIKELY(self->code != self->function->func_code))
        adopt_code(self);
    if (LIKELY(kwnames == NULL && PyVectorcall_NARGS(nargsf) == self->simple_count))
        return call_bound(self, &given);
    return call_unbound(self, &given);
}

/* What tools look for on a function; __wrapped__ is a member. */
static int copy_names(Compiled *self)
{
    static const char *names[] = {"__module__", "__name__", "__qualname__", "__doc__", "__annotations__"};
    self->dict = self->function->func_dict ? PyDict_Copy(self->function->func_dict) : PyDict_New();
    for (size_t i = 0; self->dict && i < sizeof names / sizeof *names; i++) {
        PyObject *value = PyObject_GetAttrString((PyObject *)self->function, names[i]);
        if (!value || PyDict_SetItemString(self->dict, names[i], value) < 0)
            Py_CLEAR(self->dict);
        Py_XDECREF(value);
    }
    return self->dict ? 0 : -1;
}

/* Compiled(function, miss): miss(compiled, args, kwargs) gives an Entry, or None to run the function */
static PyObject *compiled_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "miss", NULL};
    PyObject *function, *miss;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O", names, &PyFunction_Type, &function, &miss))
        return NULL;
    Compiled *self = (Compiled *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->function = (PyFunctionObject *)Py_NewRef(function);
    self->miss = Py_NewRef(miss);
    self->vectorcall = compiled_call;
    adopt_code(self);
    if (copy_names(self) == 0)
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static int compiled_traverse(PyObject *object, visitproc visit, void *arg)
{
    Compiled *self = (Compiled *)object;
    Py_VISIT(self->function);
    Py_VISIT(self->code);
    Py_VISIT(self->entries);
    Py_VISIT(self->miss);
    Py_VISIT(self->after);
    Py_VISIT(self->dict);
    return 0;
}

/* `function`, `code` and `entries` stay, since a call needs them; cycles through them break at `miss` and `dict`, or in the entries. */
static int compiled_clear(PyObject *object)
{
    Compiled *self = (Compiled *)object;
    Py_CLEAR(self->dict);
    Py_CLEAR(self->after);
    Py_XSETREF(self->miss, Py_NewRef(Py_None));
    Py_XSETREF(self->entries, PyTuple_New(0));
    self->eager = 1;
    return 0;
}

static void compiled_dealloc(PyObject *object)
{
    Compiled *self = (Compiled *)object;
    PyObject_GC_UnTrack(object);
    if (self->weak)
        PyObject_ClearWeakRefs(object);
    Py_CLEAR(self->dict);
    Py_CLEAR(self->miss);
    Py_CLEAR(self->after);
    Py_CLEAR(self->entries);
    Py_CLEAR(self->code);
    Py_CLEAR(self->function);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *compiled_get(PyObject *self, PyObject *instance, PyObject *type)
{
    return instance && instance != Py_None ? PyMethod_New(self, instance) : Py_NewRef(self);
}

static PyObject *compiled_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<compiled %U>", ((Compiled *)self)->function->func_qualname);
}

/* Copied as itself and pickled by name, as a function is. */
static PyObject *compiled_reduce(PyObject *self, PyObject *unused) { return Py_NewRef(((Compiled *)self)->function->func_qualname); }

static PyMethodDef compiled_methods[] = {
    {"__reduce__", compiled_reduce, METH_NOARGS, "The name under which it is found again."},
    {NULL, NULL, 0, NULL},
};

static PyObject *get_entries(PyObject *self, void *unused) { return Py_NewRef(((Compiled *)self)->entries); }

static int set_entries(PyObject *object, PyObject *entries, void *unused)
{
    Compiled *self = (Compiled *)object;
    if (!entries || !PyTuple_CheckExact(entries))
        return PyErr_SetString(PyExc_TypeError, "entries is a tuple of Entry"), -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); i++)
        if (!PyObject_TypeCheck(PyTuple_GET_ITEM(entries, i), &tw_entry_type))
            return PyErr_SetString(PyExc_TypeError, "entries is a tuple of Entry"), -1;
    self->last = 0;
    Py_XSETREF(self->entries, Py_NewRef(entries));
    return 0;
}

static PyMemberDef compiled_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Compiled, function), READONLY, "the Python function"},
    {"miss", T_OBJECT, offsetof(Compiled, miss), READONLY, "called where no entry matches"},
    {"eager", T_BOOL, offsetof(Compiled, eager), 0, "run the function itself, always"},
    {"after", T_OBJECT_EX, offsetof(Compiled, after), 0, "called once, when a call that missed is over; unset before and after"},
    {"misses", T_LONG, offsetof(Compiled, misses), READONLY, "calls that no entry answered"},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Compiled, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* What inspect asks a function for, and the function's own: those of the one that was compiled. */
static PyObject *get_of_function(PyObject *self, void *name)
{
    return PyObject_GetAttrString((PyObject *)((Compiled *)self)->function, name);
}

static int set_of_function(PyObject *self, PyObject *value, void *name)
{
    return PyObject_SetAttrString((PyObject *)((Compiled *)self)->function, name, value);
}

static PyGetSetDef compiled_getset[] = {
    {"__code__", get_of_function, set_of_function, NULL, "__code__"},
    {"__defaults__", get_of_function, set_of_function, NULL, "__defaults__"},
    {"__kwdefaults__", get_of_function, set_of_function, NULL, "__kwdefaults__"},
    {"entries", get_entries, set_entries, "tuple of Entry, tried in order after the one that answered last", NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject compiled_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "thruway.native._core.Compiled",
    .tp_basicsize = sizeof(Compiled),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = compiled_new,
    .tp_dealloc = compiled_dealloc,
    .tp_traverse = compiled_traverse,
    .tp_clear = compiled_clear,
    .tp_repr = compiled_repr,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Compiled, vectorcall),
    .tp_descr_get = compiled_get,
    .tp_methods = compiled_methods,
    .tp_members = compiled_members,
    .tp_getset = compiled_getset,
    .tp_dictoffset = offsetof(Compiled, dict),
    .tp_weaklistoffset = offsetof(Compiled, weak),
};

int tw_dispatch_init(PyObject *module)
{
    return PyModule_AddType(module, &tw_entry_type) < 0 ? -1 : PyModule_AddType(module, &compiled_type);
}
