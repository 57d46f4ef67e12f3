"""The C compiler of this machine, and what one source text must look like.

A *source* is one translation unit of plain C, without includes and self-contained; each becomes one shared library. It exports
`int NAME(void **pointers, const long long *sizes)` per kernel; NAME is unique within an artifact. A kernel returns 0, or the number of
the check that failed. A pointer is the address of the tensor's own first element. A source with parallel loops begins with PRELUDE, word for word:
its `tw_parallel_for(begin, end, grain, body, ctx)` runs `body(lo, hi, ctx)` over pieces of at least `grain`; at load, `tw_init` gets the
services of this process, (0) torch's own pool (`torch_parallel_for`). Without `tw_init` the loop runs on one thread, so a source runs alone.
"""

PRELUDE = """\
typedef void tw_body(long lo, long hi, void *ctx);
static void tw_serial_for(long begin, long end, long grain, tw_body *body, void *ctx) { if (begin < end) body(begin, end, ctx); }
static void (*tw_parallel_for)(long begin, long end, long grain, tw_body *body, void *ctx) = tw_serial_for;
void tw_init(void *const *services) { tw_parallel_for = (void (*)(long, long, long, tw_body *, void *))services[0]; }
"""
