"""The kernel of ours for matrix products in float32 (see `schedule/own_products`): c = a @ w + bias, one text for all sizes and layouts.

A panel of 32 columns and 256 elements of the inner axis is copied into a buffer that stays in the first cache, turned on the way where the weight
lies so; tiles of up to 12 rows are summed in registers along it. What the runs of 256 give is added up in c: no sum is longer than its run,
which keeps the error near that of blocked library sums. Rows go in blocks whose part of a run stays in the second cache.
"""

from __future__ import annotations

GRAIN = 1 << 20             # multiplications that should at least stay together on one thread


def product_text(name: str) -> str:
    return TEXT.replace("NAME", name).replace("GRAIN", str(GRAIN))


TEXT = r"""
#ifdef __clang__
#define TW_CONTRACT _Pragma("clang fp contract(fast)")
#define TW_PLAIN
#define TW_CONTRACTED
#else
#define TW_CONTRACT
#define TW_PLAIN __attribute__((optimize("O2", "no-tree-vectorize")))
#define TW_CONTRACTED __attribute__((optimize("O2", "no-tree-vectorize", "fp-contract=fast")))
#endif
enum { TW_WIDE = 32, TW_DEEP = 256, TW_TALL = 512 };
typedef float tw_v16 __attribute__((vector_size(64), aligned(4), may_alias));

/* c[i][j] = bias[j], or what stands there where `adds`, plus the sum over p of a[i*lda + p] * b[p][j]; n rows, 32 columns */
#define TW_TILE(n) \
static void TW_CONTRACTED tw_tile##n(long depth, const float *a, long lda, const float *b, float *c, long ldc, const float *bias, int adds) { \
    TW_CONTRACT \
    tw_v16 s[n][2]; \
    _Pragma("GCC unroll 12") for (int i = 0; i < n; i++) s[i][0] = s[i][1] = (tw_v16){0}; \
    for (long p = 0; p < depth; p++) { \
        const tw_v16 b0 = *(const tw_v16 *)(b + TW_WIDE * p), b1 = *(const tw_v16 *)(b + TW_WIDE * p + 16); \
        _Pragma("GCC unroll 12") for (int i = 0; i < n; i++) { const float x = a[i * lda + p]; s[i][0] += b0 * x; s[i][1] += b1 * x; } \
    } \
    _Pragma("GCC unroll 12") for (int i = 0; i < n; i++) { \
        tw_v16 *to = (tw_v16 *)(c + i * ldc); \
        const tw_v16 *from = adds ? to : (const tw_v16 *)bias; \
        to[0] = from[0] + s[i][0]; to[1] = from[1] + s[i][1]; \
    } \
}
TW_TILE(1) TW_TILE(4) TW_TILE(8) TW_TILE(12)

/* the panel b[p][j] of the weight's elements w[p*down + j*across], zeros behind the last column */
static void tw_panel(const float *w, long depth, long columns, long down, long across, float *b) {
    if (across == 1 && columns == TW_WIDE)
        for (long p = 0; p < depth; p++) {
            const float *from = w + p * down;
            ((tw_v16 *)(b + TW_WIDE * p))[0] = ((const tw_v16 *)from)[0]; ((tw_v16 *)(b + TW_WIDE * p))[1] = ((const tw_v16 *)from)[1];
            __builtin_prefetch(from + TW_WIDE, 0, 2); __builtin_prefetch(from + TW_WIDE + 16, 0, 2);
        }
    else if (down == 1 && columns == TW_WIDE) {
        long p = 0;
        float t[16][16] __attribute__((aligned(64)));
        for (; p + 16 <= depth; p += 16)
            for (int h = 0; h < TW_WIDE; h += 16) {
                tw_turn16(w + p + h * across, across, t);
                for (int k = 0; k < 16; k++) *(tw_v16 *)(b + TW_WIDE * (p + k) + h) = *(const tw_v16 *)t[k];
            }
        for (; p < depth; p++) for (long j = 0; j < TW_WIDE; j++) b[TW_WIDE * p + j] = w[p + j * across];
    } else
        for (long p = 0; p < depth; p++) for (long j = 0; j < TW_WIDE; j++) b[TW_WIDE * p + j] = j < columns ? w[p * down + j * across] : 0.0f;
}

struct tw_product { const float *a, *w, *bias; float *c; long rows, columns, inner, lda, down, across; };

/* rows `row` to `end` of the panel, in tiles as high as fit */
static void TW_PLAIN tw_product_rows(
        const struct tw_product *x, long row, long end, long start, long depth, const float *b, float *c, long ldc, const float *bias) {
    for (long n; row < end; row += n) {
        const float *a = x->a + row * x->lda + start;
        float *to = c + row * ldc;
        n = end - row >= 12 ? 12 : end - row >= 8 ? 8 : end - row >= 4 ? 4 : 1;
        (n == 12 ? tw_tile12 : n == 8 ? tw_tile8 : n == 4 ? tw_tile4 : tw_tile1)(depth, a, x->lda, b, to, ldc, bias, start != 0);
    }
}

/* panel `panel` of the columns against rows `top` to `bottom` and the run of the inner axis from `start` on */
static void TW_PLAIN tw_product_panel(const struct tw_product *x, long panel, long top, long bottom, long start) {
    float b[TW_DEEP * TW_WIDE] __attribute__((aligned(64))), edge[12 * TW_WIDE], bias[TW_WIDE];
    const long column = panel * TW_WIDE, columns = tw_minl(TW_WIDE, x->columns - column), depth = tw_minl(TW_DEEP, x->inner - start);
    float *c = x->c + column;
    tw_panel(x->w + start * x->down + column * x->across, depth, columns, x->down, x->across, b);
    for (long j = 0; j < TW_WIDE; j++) bias[j] = x->bias && j < columns ? x->bias[column + j] : 0.0f;
    if (columns == TW_WIDE) {
        tw_product_rows(x, top, bottom, start, depth, b, c, x->columns, bias);
        return;
    }
    for (long row = top; row < bottom; row += 12) {
        const long last = tw_minl(row + 12, bottom);
        for (long i = row; i < last; i++) for (long j = 0; j < columns; j++) edge[(i - row) * TW_WIDE + j] = c[i * x->columns + j];
        tw_product_rows(x, row, last, start, depth, b, edge - row * TW_WIDE, TW_WIDE, bias);
        for (long i = row; i < last; i++) for (long j = 0; j < columns; j++) c[i * x->columns + j] = edge[(i - row) * TW_WIDE + j];
    }
}

static void tw_product_panels(long lo, long hi, void *ctx) {
    const struct tw_product *x = ctx;
    const long panels = (x->columns + TW_WIDE - 1) / TW_WIDE;
    for (long next; lo < hi; lo = next) {
        const long block = lo / panels, top = block * TW_TALL;
        next = tw_minl(hi, (block + 1) * panels);
        for (long start = 0; start < x->inner; start += TW_DEEP)
            for (long item = lo; item < next; item++) tw_product_panel(x, item - block * panels, top, tw_minl(top + TW_TALL, x->rows), start);
    }
}

int NAME(void **pointers, const long long *sizes) {
    const struct tw_product x = {
        (const float *)pointers[0] + sizes[6], (const float *)pointers[1] + sizes[7], sizes[9] ? (const float *)pointers[3] + sizes[8] : 0,
        (float *)pointers[2], sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5] };
    const long items = (x.columns + TW_WIDE - 1) / TW_WIDE * ((x.rows + TW_TALL - 1) / TW_TALL);
    tw_parallel_for(0, items, 1 + GRAIN / (1 + tw_minl(x.rows, TW_TALL) * x.inner * TW_WIDE), tw_product_panels, (void *)&x);
    return 0;
}
"""
