#include "dispatch.h"
static __thread int depth;
int tw_hook_init(PyObject *module) { return 0; }
void tw_hook_enter(void) { depth++; }
void tw_hook_exit(void) { depth--; }
int tw_hook_pause(void) { int was = depth; depth = 0; return was; }
void tw_hook_resume(int was) { depth = was; }
