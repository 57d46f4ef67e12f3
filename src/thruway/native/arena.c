/* Memory for intermediates. There is one arena per call that runs at the same time, as large as the largest program needs:
   when a larger one is wanted, idle smaller ones go, with the frames that were built on them. */
#include "program.h"

static Arena *arenas;

static void free_arena(Arena *arena)
{
    Arena **at = &arenas;
    while (*at != arena)
        at = &(*at)->next;
    *at = arena->next;
    Py_DECREF(arena->tensor);
    PyMem_Free(arena);
}

/* Takes an idle frame out of its program's pool. */
static void leave_pool(Frame *f)
{
    Frame **at = &f->program->pool;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    f->program->pooled--;
}

static Arena *any_idle_arena(void)
{
    Arena *arena = arenas;
    while (arena && arena->busy)
        arena = arena->next;
    return arena;
}

/* An arena goes with its last frame. Freeing a tensor may let other threads run, so each turn looks anew. */
static void free_idle_arenas(void)
{
    for (Arena *arena; (arena = any_idle_arena());) {
        Frame *f = arena->frames;
        leave_pool(f);
        tw_free_frame(f);
    }
}

static Arena *new_arena(int64_t bytes)
{
    PyObject *size = PyLong_FromLongLong(bytes), *tensor = size ? PyObject_CallOneArg(tw_make_arena, size) : NULL;
    Py_XDECREF(size);
    Arena *arena = tensor ? PyMem_Calloc(1, sizeof *arena) : NULL;
    if (!arena) {
        Py_XDECREF(tensor);
        return PyErr_Occurred() ? NULL : (Arena *)PyErr_NoMemory();
    }
    *arena = (Arena){arenas, tensor, bytes, 0, NULL};
    return arenas = arena;
}

Arena *tw_idle_arena(int64_t bytes)
{
    for (Arena *arena = arenas; arena; arena = arena->next)
        if (!arena->busy && arena->bytes >= bytes)
            return arena;
    free_idle_arenas();
    return new_arena(bytes);
}

void tw_leave_arena(Frame *f)
{
    Frame **at = &f->arena->frames;
    while (*at != f)
        at = &(*at)->next_on_arena;
    *at = f->next_on_arena;
    if (!f->arena->frames)
        free_arena(f->arena);
}
