/* The PEP 523 evaluator: takes over frames that nobody of ours called, in threads where a region is active.

   It is never chained: a frame that is not ours goes to the default evaluator, not to whoever was installed before, since
   two such users that remember each other call each other for ever. What was found is put back on leaving, if we are
   still on top. Entries hang on the code object; an item is an Entry, or a pair (guard, replacement code). */
#define _GNU_SOURCE
#include "frame_compat.h"
#include "dispatch.h"
#include <pthread.h>

static __thread __attribute__((tls_model("initial-exec"))) int depth; /* > 0: a region is active in this thread */
static __thread __attribute__((tls_model("initial-exec"))) char *stack_floor;
static __thread __attribute__((tls_model("initial-exec"))) int region; /* whose frames are being looked at: what was compiled with the same options */
static __thread __attribute__((tls_model("initial-exec"))) PyObject *left; /* a function whose next frame is not taken over: its compiled form made the call */
static int active_threads;
static Py_ssize_t extra_index = -1;
static PyObject *callback;
static PyCodeObject *return_code;
static int force_call; /* for tests: behave as if the data stack had no room */
static _PyFrameEvalFunction found_evaluator = _PyEval_EvalFrameDefault;
static long hits, misses, callbacks, calls_instead;
static int generation;        /* decisions of an older one do not count */
static int is_off, is_forked; /* is_off: no frame is taken over, in any thread; is_forked: nor will one ever be */

#define MISSES 64 /* calls in a row after which code whose entries are settled is left alone */

/* What becomes of a code object's frames. SKIP: they run as they are. OFF_BELOW: and the hook is off meanwhile. SETTLED: its entries are
   tried, nobody is asked for others. */
typedef enum { ASK, SKIP, OFF_BELOW, SETTLED } Decision;

typedef struct {
    Decision decision;
    int generation, missed; /* missed: calls in a row that no entry answered */
    PyObject *entries;      /* tuple or NULL */
} Extra;

static PyObject *evaluate(PyThreadState *ts, Frame *frame, int throwflag);

/* ---- activation */

static void find_stack_floor(void)
{
    pthread_attr_t attributes;
    void *low = NULL;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &low, &size);
        pthread_attr_destroy(&attributes);
    }
    stack_floor = low ? (char *)low + size / 4 : (char *)1;
}

static void install(void)
{
    if (is_forked)
        return;
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    found_evaluator = current == evaluate ? _PyEval_EvalFrameDefault : current;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
}

static void uninstall(void)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == evaluate)
        _PyInterpreterState_SetEvalFrameFunc(interpreter, found_evaluator);
}

int tw_hook_enter(int entered)
{
    int before = region;
    region = entered;
    if (depth++ == 0 && active_threads++ == 0)
        install();
    return before;
}

void tw_hook_exit(int before)
{
    region = before;
    if (--depth == 0 && --active_threads == 0)
        uninstall();
}

int tw_hook_pause(void)
{
    int was = depth;
    depth = 0;
    return was;
}

void tw_hook_resume(int was) { depth = was; }

PyObject *tw_hook_call(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames, int hooked)
{
    if (hooked <= 0 && depth == 0)
        return PyObject_Vectorcall(function, args, nargsf, kwnames);
    PyObject *left_before = left;
    int before = hooked > 0 ? tw_hook_enter(hooked) : hooked < 0 ? tw_hook_pause() : 0;
    left = function;
    PyObject *result = PyObject_Vectorcall(function, args, nargsf, kwnames);
    left = left_before;
    if (hooked > 0)
        tw_hook_exit(before);
    else if (hooked < 0)
        tw_hook_resume(before);
    return result;
}

/* ---- entries on code objects */

static void free_extra(void *memory)
{
    Extra *extra = memory;
    if (extra)
        Py_CLEAR(extra->entries);
    PyMem_Free(extra);
}

static inline Extra *get_extra(PyCodeObject *code)
{
    void *extra = NULL;
    if (code->co_extra != NULL) /* almost no code object has any */
        get_extra_slot((PyObject *)code, extra_index, &extra);
    return extra;
}

static Extra *make_extra(PyCodeObject *code)
{
    Extra *extra = get_extra(code);
    if (extra)
        return extra;
    extra = PyMem_Calloc(1, sizeof *extra);
    if (extra && set_extra_slot((PyObject *)code, extra_index, extra) == 0)
        return extra;
    PyMem_Free(extra);
    return PyErr_Occurred() ? NULL : (Extra *)PyErr_NoMemory();
}

static Decision decision_of(const Extra *extra)
{
    return extra->generation == generation ? extra->decision : ASK;
}

static void decide(Extra *extra, Decision decision)
{
    extra->decision = decision;
    extra->generation = generation;
    extra->missed = 0;
}

static int argument_count(PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS) + !!(code->co_flags & CO_VARKEYWORDS);
}

/* ---- one frame */

/* 1, 0, or -1 with an exception: None holds always, a tuple are the exact types of the first arguments, else a callable */
static int guard_holds(PyObject *guard, PyObject *const *locals, int count)
{
    if (guard == Py_None)
        return 1;
    if (!PyTuple_CheckExact(guard)) {
        PyObject *answer = PyObject_Vectorcall(guard, locals, (size_t)count, NULL);
        int truth = answer ? PyObject_IsTrue(answer) : -1;
        Py_XDECREF(answer);
        return truth;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(guard); i++)
        if (i >= count || !locals[i] || (PyObject *)Py_TYPE(locals[i]) != PyTuple_GET_ITEM(guard, i))
            return 0;
    return 1;
}

static int put_keywords(PyObject *kwargs, Frame *frame, PyCodeObject *code)
{
    for (int i = code->co_argcount; i < code->co_argcount + code->co_kwonlyargcount; i++)
        if (PyDict_SetItem(kwargs, PyTuple_GET_ITEM(code->co_localsplusnames, i), frame->localsplus[i]) < 0)
            return -1;
    return 0;
}

/* Runs `code` by an ordinary call with the frame's arguments: where the frame cannot be made to fit it. */
static PyObject *call_instead(Frame *frame, PyCodeObject *old, PyCodeObject *code)
{
    PyFunctionObject *original = frame_function(frame);
    int at = old->co_argcount + old->co_kwonlyargcount;
    PyObject *rest = old->co_flags & CO_VARARGS ? frame->localsplus[at++] : NULL;
    PyObject *more = old->co_flags & CO_VARKEYWORDS ? frame->localsplus[at] : NULL;
    Py_ssize_t extra = rest ? PyTuple_GET_SIZE(rest) : 0;
    PyObject *function = PyFunction_NewWithQualName((PyObject *)code, original->func_globals, original->func_qualname);
    PyObject *args = PyTuple_New(old->co_argcount + extra), *kwargs = more ? PyDict_Copy(more) : PyDict_New(), *result = NULL;
    calls_instead++;
    if (function && args && kwargs && put_keywords(kwargs, frame, old) == 0) {
        ((PyFunctionObject *)function)->func_closure = Py_XNewRef(original->func_closure);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++)
            PyTuple_SET_ITEM(args, i, Py_NewRef(i < old->co_argcount ? frame->localsplus[i] : PyTuple_GET_ITEM(rest, i - old->co_argcount)));
        result = PyObject_Call(function, args, kwargs);
    }
    Py_XDECREF(function);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return result;
}

static PyObject *run_replacement(PyThreadState *ts, Frame *frame, PyCodeObject *old, PyCodeObject *code)
{
    if (force_call || !frame_make_room(ts, frame, old, code))
        return frame_finish(ts, frame, call_instead(frame, old, code), return_code);
    frame_swap_code(frame, code, argument_count(old));
    return _PyEval_EvalFrameDefault(ts, frame, 0);
}

enum { NO_MATCH, DONE };

static PyObject *run_without_regions(PyThreadState *ts, Frame *frame)
{
    int was = tw_hook_pause();
    PyObject *result = _PyEval_EvalFrameDefault(ts, frame, 0);
    tw_hook_resume(was);
    return result;
}

/* The region gave up with the error that is set: the frame itself answers, without regions below, which could only find the same error. */
static PyObject *run_after_failure(PyThreadState *ts, Frame *frame, Entry *entry)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyObject *result = run_without_regions(ts, frame);
    int was = tw_hook_pause();
    if (result)
        tw_tell_failed(entry, error);
    tw_hook_resume(was);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return result;
}

/* An Entry on a fresh frame: DONE with *result, where the frame has ended. */
static int try_entry(PyThreadState *ts, Frame *frame, PyCodeObject *code, Entry *entry, const TorchState *state, PyObject **result)
{
    if (entry->below != region)
        return NO_MATCH;
    int count = argument_count(code), was = tw_hook_pause(), matched = 0;
    Py_ssize_t wanted = tw_guards_inputs(entry->guards);
    PyObject *few[64], **inputs = wanted <= 64 ? few : PyMem_Malloc(sizeof(PyObject *) * (size_t)wanted), *value = NULL;
    if (inputs)
        matched = tw_entry_matches(entry, state, (PyObject *)frame_function(frame), frame->localsplus, count, inputs);
    if (matched && !tw_runs_eager(entry))
        value = tw_run_entry(entry, (PyObject *)frame_function(frame), frame->localsplus, count, inputs);
    else if (matched)
        for (Py_ssize_t i = 0; i < wanted; i++)
            Py_DECREF(inputs[i]);
    if (inputs != few)
        PyMem_Free(inputs);
    tw_hook_resume(was);
    if (!matched)
        return NO_MATCH;
    if (tw_runs_eager(entry))
        *result = entry->hooked < 0 ? run_without_regions(ts, frame) : _PyEval_EvalFrameDefault(ts, frame, 0);
    else if (!value && PyErr_ExceptionMatches(tw_region_failed))
        *result = run_after_failure(ts, frame, entry);
    else
        *result = frame_finish(ts, frame, value, return_code);
    return DONE;
}

static int try_pair(PyThreadState *ts, Frame *frame, PyCodeObject *code, PyObject *pair, PyObject **result)
{
    int was = tw_hook_pause();
    int holds = guard_holds(PyTuple_GET_ITEM(pair, 0), frame->localsplus, argument_count(code));
    tw_hook_resume(was);
    if (holds == 0)
        return NO_MATCH;
    if (holds < 0)
        *result = frame_finish(ts, frame, NULL, return_code);
    else
        *result = run_replacement(ts, frame, code, (PyCodeObject *)PyTuple_GET_ITEM(pair, 1));
    return DONE;
}

static int try_entries(PyThreadState *ts, Frame *frame, PyCodeObject *code, PyObject *entries, PyObject **result)
{
    TorchState state;
    int answer = NO_MATCH;
    if (tw_read_state(&state) < 0) {
        *result = frame_finish(ts, frame, NULL, return_code);
        return DONE;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries) && answer == NO_MATCH; i++) {
        PyObject *item = PyTuple_GET_ITEM(entries, i);
        answer = PyTuple_CheckExact(item) ? try_pair(ts, frame, code, item, result) : try_entry(ts, frame, code, (Entry *)item, &state, result);
    }
    return answer;
}

/* callback(code, function, arguments by position of the frame's locals) */
static PyObject *ask_callback(Frame *frame, PyCodeObject *code)
{
    int count = argument_count(code), was = tw_hook_pause();
    PyObject *locals = PyTuple_New(count), *answer = NULL, *asked = Py_NewRef(callback);
    for (int i = 0; locals && i < count; i++)
        PyTuple_SET_ITEM(locals, i, Py_XNewRef(frame->localsplus[i]));
    callbacks++;
    if (locals)
        answer = PyObject_CallFunctionObjArgs(asked, code, frame_function(frame), locals, NULL);
    Py_XDECREF(locals);
    Py_DECREF(asked);
    tw_hook_resume(was);
    return answer;
}

/* Settled entries that no call finds any more are not even tried. */
static void note_miss(Extra *extra)
{
    misses++;
    if (extra && ++extra->missed >= MISSES && decision_of(extra) == SETTLED)
        decide(extra, SKIP);
}

/* None: nobody asks again for this code, whose entries stay. True: and the hook is off below its frames. An Entry or a code object is used at
   once. False: not now; Ellipsis: nor below this frame. */
static PyObject *run_answer(PyThreadState *ts, Frame *frame, PyCodeObject *code, PyObject *answer)
{
    PyObject *result = NULL;
    TorchState state;
    if (PyCode_Check(answer))
        return run_replacement(ts, frame, code, (PyCodeObject *)answer);
    if (PyObject_TypeCheck(answer, &tw_entry_type) && tw_read_state(&state) == 0
        && try_entry(ts, frame, code, (Entry *)answer, &state, &result) == DONE)
        return result;
    Extra *extra = answer == Py_None || answer == Py_True ? make_extra(code) : NULL;
    if (extra)
        decide(extra, answer == Py_True ? OFF_BELOW : extra->entries ? SETTLED : SKIP);
    PyErr_Clear();
    return answer == Py_True || answer == Py_Ellipsis ? run_without_regions(ts, frame) : _PyEval_EvalFrameDefault(ts, frame, 0);
}

static PyObject *__attribute__((noinline)) take_over(PyThreadState *ts, Frame *frame, PyCodeObject *code, Extra *extra)
{
    const int kinds = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_OPTIMIZED | CO_NEWLOCALS;
    PyObject *result = NULL;
    if ((code->co_flags & kinds) != (CO_OPTIMIZED | CO_NEWLOCALS) || !frame_is_fresh(frame, code))
        return _PyEval_EvalFrameDefault(ts, frame, 0);
    Py_INCREF(code); /* a swap gives up the frame's reference */
    PyObject *entries = extra ? Py_XNewRef(extra->entries) : NULL;
    int done = entries ? try_entries(ts, frame, code, entries, &result) : NO_MATCH;
    Py_XDECREF(entries);
    if (done == DONE) {
        hits++;
        if (extra)
            extra->missed = 0;
    } else if (note_miss(extra), !callback || (extra && decision_of(extra) != ASK)) {
        result = _PyEval_EvalFrameDefault(ts, frame, 0);
    } else {
        PyObject *answer = ask_callback(frame, code);
        result = answer ? run_answer(ts, frame, code, answer) : frame_finish(ts, frame, NULL, return_code);
        Py_XDECREF(answer);
    }
    Py_DECREF(code);
    return result;
}

/* Of any thread: while the evaluator is there for one, the Python calls of all take C stack. */
static inline int stack_is_low(PyThreadState *ts)
{
    if (UNLIKELY(!stack_floor))
        find_stack_floor();
    return (char *)&ts < stack_floor || frame_c_recursion_is_low(ts);
}

/* Below this frame the hook is off, so that Python calls take no more C stack. */
static PyObject *__attribute__((noinline)) run_without_hook(PyThreadState *ts, Frame *frame, int throwflag)
{
    int was = tw_hook_pause();
    uninstall();
    PyObject *result = _PyEval_EvalFrameDefault(ts, frame, throwflag);
    if (active_threads > 0)
        install();
    tw_hook_resume(was);
    return result;
}

static PyObject *evaluate(PyThreadState *ts, Frame *frame, int throwflag)
{
    if (UNLIKELY(stack_is_low(ts)))
        return run_without_hook(ts, frame, throwflag);
    if (LIKELY(depth == 0) || throwflag || is_off || is_traced(ts))
        return _PyEval_EvalFrameDefault(ts, frame, throwflag);
    if (UNLIKELY((PyObject *)frame_function(frame) == left)) {
        left = NULL;
        return _PyEval_EvalFrameDefault(ts, frame, 0);
    }
    PyCodeObject *code = frame_code(frame);
    Extra *extra = get_extra(code);
    Decision decision = extra ? decision_of(extra) : callback ? ASK : SKIP;
    if (decision == SKIP)
        return _PyEval_EvalFrameDefault(ts, frame, 0);
    return decision == OFF_BELOW ? run_without_regions(ts, frame) : take_over(ts, frame, code, extra);
}

/* ---- from Python */

static PyObject *hook_install(PyObject *module, PyObject *args)
{
    PyObject *called, *code;
    if (!PyArg_ParseTuple(args, "OO!", &called, &PyCode_Type, &code))
        return NULL;
    Py_XSETREF(return_code, (PyCodeObject *)Py_NewRef(code));
    Py_XSETREF(callback, called == Py_None ? NULL : Py_NewRef(called));
    Py_RETURN_NONE;
}

static PyObject *hook_enter(PyObject *module, PyObject *unused)
{
    if (!return_code)
        return PyErr_Format(PyExc_RuntimeError, "the frame hook was not installed");
    tw_hook_enter(region);
    Py_RETURN_NONE;
}

static PyObject *hook_exit(PyObject *module, PyObject *unused)
{
    if (depth == 0)
        return PyErr_Format(PyExc_RuntimeError, "the frame hook is not active in this thread");
    tw_hook_exit(region);
    Py_RETURN_NONE;
}

static int same_free_variables(PyCodeObject *a, PyCodeObject *b)
{
    PyObject *first = PyCode_GetFreevars(a), *second = PyCode_GetFreevars(b);
    int same = first && second ? PyObject_RichCompareBool(first, second, Py_EQ) : -1;
    Py_XDECREF(first);
    Py_XDECREF(second);
    return same == 1;
}

static int can_replace(PyCodeObject *old, PyCodeObject *new)
{
    const int kinds = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_OPTIMIZED | CO_NEWLOCALS;
    return same_free_variables(old, new) && old->co_argcount == new->co_argcount && old->co_posonlyargcount == new->co_posonlyargcount
        && old->co_kwonlyargcount == new->co_kwonlyargcount && (old->co_flags & kinds) == (new->co_flags & kinds)
        && !(new->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR));
}

static int is_item(PyCodeObject *code, PyObject *item)
{
    if (PyObject_TypeCheck(item, &tw_entry_type))
        return 1;
    return PyTuple_CheckExact(item) && PyTuple_GET_SIZE(item) == 2 && PyCode_Check(PyTuple_GET_ITEM(item, 1))
        && can_replace(code, (PyCodeObject *)PyTuple_GET_ITEM(item, 1));
}

/* hook_set_entries(code, entries): Entry objects, or pairs of a guard and a code of the same signature and free variables */
static PyObject *hook_set_entries(PyObject *module, PyObject *args)
{
    PyObject *entries;
    PyCodeObject *code;
    if (!PyArg_ParseTuple(args, "O!O!", &PyCode_Type, &code, &PyTuple_Type, &entries))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); i++)
        if (!is_item(code, PyTuple_GET_ITEM(entries, i)))
            return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "the replacement has another signature, other free variables or is a generator");
    Extra *extra = make_extra(code);
    if (!extra)
        return NULL;
    decide(extra, ASK);
    Py_XSETREF(extra->entries, PyTuple_GET_SIZE(entries) ? Py_NewRef(entries) : NULL);
    Py_RETURN_NONE;
}

static PyObject *hook_get_entries(PyObject *module, PyObject *code)
{
    if (!PyCode_Check(code))
        return PyErr_Format(PyExc_TypeError, "expected a code object");
    Extra *extra = get_extra((PyCodeObject *)code);
    return extra && extra->entries ? Py_NewRef(extra->entries) : PyTuple_New(0);
}

/* hook_skip(code, flag): whether its frames are left alone, until hook_forget */
static PyObject *hook_skip(PyObject *module, PyObject *args)
{
    PyCodeObject *code;
    int flag = 1;
    if (!PyArg_ParseTuple(args, "O!|p", &PyCode_Type, &code, &flag))
        return NULL;
    Extra *extra = make_extra(code);
    if (!extra)
        return NULL;
    decide(extra, flag ? SKIP : ASK);
    Py_RETURN_NONE;
}

static PyObject *hook_forget(PyObject *module, PyObject *unused)
{
    generation++;
    Py_RETURN_NONE;
}

static PyObject *hook_switch_off(PyObject *module, PyObject *flag)
{
    int truth = PyObject_IsTrue(flag);
    if (truth < 0)
        return NULL;
    is_off = truth;
    Py_RETURN_NONE;
}

/* A forked child has this thread alone; the region it may stand in ends without frames taken over. */
static PyObject *hook_after_fork(PyObject *module, PyObject *unused)
{
    active_threads = 0;
    if (depth > 0) {
        depth = 0;
        is_forked = 1;
        uninstall();
    }
    Py_RETURN_NONE;
}

static PyObject *hook_region(PyObject *module, PyObject *unused) { return PyLong_FromLong(region); }

/* hook_pause(): off in this thread until hook_resume(what it gave) */
static PyObject *hook_pause(PyObject *module, PyObject *unused) { return PyLong_FromLong(tw_hook_pause()); }

static PyObject *hook_resume(PyObject *module, PyObject *was)
{
    long depth_before = PyLong_AsLong(was);
    if (depth_before == -1 && PyErr_Occurred())
        return NULL;
    tw_hook_resume((int)depth_before);
    Py_RETURN_NONE;
}

static PyObject *hook_force_call(PyObject *module, PyObject *flag)
{
    force_call = PyObject_IsTrue(flag);
    Py_RETURN_NONE;
}

static PyObject *hook_stats(PyObject *module, PyObject *unused)
{
    int on_top = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == evaluate;
    return Py_BuildValue("{s:l,s:l,s:l,s:l,s:i,s:O}", "hits", hits, "misses", misses, "callbacks", callbacks, "calls_instead", calls_instead, "depth", depth,
                         "on_top", on_top ? Py_True : Py_False);
}

static PyMethodDef methods[] = {
    {"hook_install", hook_install, METH_VARARGS, "hook_install(callback or None, return code)"},
    {"hook_enter", hook_enter, METH_NOARGS, "Activates the hook in this thread; calls nest."},
    {"hook_exit", hook_exit, METH_NOARGS, "Undoes one hook_enter."},
    {"hook_set_entries", hook_set_entries, METH_VARARGS, "hook_set_entries(code, entries)"},
    {"hook_get_entries", hook_get_entries, METH_O, "The tuple that was set."},
    {"hook_skip", hook_skip, METH_VARARGS, "hook_skip(code, flag=True)"},
    {"hook_forget", hook_forget, METH_NOARGS, "Asks anew about all code."},
    {"hook_switch_off", hook_switch_off, METH_O, "True: no frame is taken over in any thread, until it is False."},
    {"hook_after_fork", hook_after_fork, METH_NOARGS, "For the child: no frame is taken over where it was made inside a region."},
    {"hook_region", hook_region, METH_NOARGS, "The region that this thread stands in: what entries were made with as `hooked`."},
    {"hook_pause", hook_pause, METH_NOARGS, "Switches the hook off in this thread; gives what hook_resume takes."},
    {"hook_resume", hook_resume, METH_O, "Undoes hook_pause."},
    {"hook_force_call", hook_force_call, METH_O, "For tests: never exchange code in place."},
    {"hook_stats", hook_stats, METH_NOARGS, "Counts since the start, and this thread's depth."},
    {NULL, NULL, 0, NULL},
};

int tw_hook_init(PyObject *module)
{
    extra_index = request_extra_index(free_extra);
    return extra_index < 0 ? -1 : PyModule_AddFunctions(module, methods);
}
