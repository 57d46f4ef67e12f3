"""The kernel of ours for products in bfloat16 by weights as they lie ([columns, inner]): c = a @ w' + bias, for processors with `vdpbf16ps`.

It multiplies pairs along the inner axis, and a pair of the weight is what is broadcast, so that the weight is read in order and needs no packing.
What lies across a vector are rows: blocks of them are turned once, at the price of a hundredth of the product. Tiles of 8 columns by 48, 32
or 16 rows are summed in registers over the whole inner axis, rounded once behind the bias and turned back 32 columns at a time.
"""

from __future__ import annotations

from thruway.core.target import PAIRED_COLUMNS

GRAIN = 1 << 21             # multiplications that should at least stay together on one thread
BLOCK_BYTES = 1 << 18       # of turned rows, on the stack, for the second cache


def product_bf16_text(name: str) -> str:
    return TEXT.replace("NAME", name).replace("GRAIN", str(GRAIN)).replace("BLOCK", str(BLOCK_BYTES)).replace("SIDE", str(PAIRED_COLUMNS))


TEXT = r"""
#define TW_ONCE __attribute__((noinline))
#ifdef __clang__
#define TW_BRIEF
#else
#define TW_BRIEF __attribute__((noinline, optimize("O2", "no-tree-vectorize")))
#endif
enum { TW_GROUP = 32, TW_ROWS = 48 };
typedef float tw_f16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int tw_i16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef unsigned tw_u16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int tw_pair __attribute__((aligned(2), may_alias));

#ifdef __AVX512BF16__
#define TW_DOT(s, x, y) __asm__("vdpbf16ps %2, %1, %0" : "+v"(s) : "v"(x), "v"(y))
/* the low and the high half of each pair, rounded */
TWI tw_i16 tw_pairs(tw_f16 low, tw_f16 high) {
    const tw_i16 order = (tw_i16){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} * 0x10001 + (16 << 16);
    tw_i16 both, mixed;
    __asm__("vcvtne2ps2bf16 %2, %1, %0" : "=v"(both) : "v"(high), "v"(low));
    __asm__("vpermw %1, %2, %0" : "=v"(mixed) : "v"(both), "v"(order));
    return mixed;
}
#else
#define TW_DOT(s, x, y) (s += (tw_f16)((tw_i16)(x) << 16) * (tw_f16)((y) << 16) + (tw_f16)((tw_i16)(x) & -65536) * (tw_f16)((y) & -65536))
TWI tw_i16 tw_pairs(tw_f16 low, tw_f16 high) {
    const tw_u16 l = (tw_u16)low, h = (tw_u16)high;
    return (tw_i16)(((h + 0x7fff + ((h >> 16) & 1)) & 0xffff0000u) | ((l + 0x7fff + ((l >> 16) & 1)) >> 16));
}
#endif

/* c[j][i] = bias[j] plus the sum over the pairs p of a[p][i] * w[j*ldw + p]: SIDE columns j by n vectors of rows i */
#define TW_TILE(n) \
static void TW_BRIEF tw_pairs##n(long pairs, const int *a, const tw_pair *w, long ldw, const float *bias, float *c, const char *ahead) { \
    tw_f16 s[SIDE][n]; \
    _Pragma("GCC unroll 8") for (int j = 0; j < SIDE; j++) _Pragma("GCC unroll 3") for (int v = 0; v < n; v++) s[j][v] = (tw_f16){0} + bias[j]; \
    for (long p = 0; p < pairs; p++) { \
        tw_f16 x[n]; \
        _Pragma("GCC unroll 3") for (int v = 0; v < n; v++) x[v] = *(const tw_f16 *)(a + 16 * (n * p + v)); \
        __builtin_prefetch(ahead + 64 * p, 0, 2); \
        _Pragma("GCC unroll 8") for (int j = 0; j < SIDE; j++) { \
            const tw_i16 y = (tw_i16){0} + w[j * ldw + p]; \
            _Pragma("GCC unroll 3") for (int v = 0; v < n; v++) TW_DOT(s[j][v], x[v], y); \
        } \
    } \
    _Pragma("GCC unroll 8") for (int j = 0; j < SIDE; j++) \
        _Pragma("GCC unroll 3") for (int v = 0; v < n; v++) *(tw_f16 *)(c + TW_ROWS * j + 16 * v) = s[j][v]; \
}
TW_TILE(1) TW_TILE(2) TW_TILE(3)

struct tw_paired { const unsigned short *a, *w, *bias; unsigned short *c; long rows, columns, inner, lda, ldw; };

/* vectors of rows in the next panel: three, and no single one at the end where that can be helped */
static long tw_height(long rows) { const long left = (rows + 15) / 16; return left == 4 ? 2 : tw_minl(left, 3); }

/* panel[p][i], the pair p of each of the n vectors of rows from `row` on; zeros behind the last */
static void TW_ONCE tw_turn_rows(const struct tw_paired *x, long row, long n, int *panel) {
    const long pairs = x->inner / 2;
    for (long v = 0; v < n; v++, row += 16) {
        const unsigned short *from = x->a + row * x->lda;
        int *to = panel + 16 * v, t[16][16] __attribute__((aligned(64)));
        long p = 0;
        for (; row + 16 <= x->rows && p + 16 <= pairs; p += 16) {
            tw_turn16(from + 2 * p, x->lda / 2, t);
            for (int k = 0; k < 16; k++) *(tw_i16 *)(to + 16 * n * (p + k)) = *(const tw_i16 *)t[k];
        }
        for (; p < pairs; p++) for (long i = 0; i < 16; i++) to[16 * n * p + i] = row + i < x->rows ? *(const tw_pair *)(from + i * x->lda + 2 * p) : 0;
    }
}

/* up to 32 columns of n vectors of rows, rounded and turned to where they belong */
static void TW_ONCE tw_put_rows(const struct tw_paired *x, const float *c, long row, long n, long column) {
    const long columns = tw_minl(TW_GROUP, x->columns - column);
    for (long v = 0; v < n; v++, row += 16) {
        int t[16][16] __attribute__((aligned(64))), u[16][16] __attribute__((aligned(64)));
        const float *from = c + 16 * v;
        for (int k = 0; k < 16; k++) *(tw_i16 *)t[k] = tw_pairs(*(const tw_f16 *)(from + 2 * TW_ROWS * k), *(const tw_f16 *)(from + 2 * TW_ROWS * k + TW_ROWS));
        tw_turn16(t, 16, u);
        unsigned short *to = x->c + row * x->columns + column;
        for (long i = 0; i < tw_minl(16, x->rows - row); i++, to += x->columns)
            if (columns == TW_GROUP) *(tw_i16 *)to = *(const tw_i16 *)u[i];
            else for (long j = 0; j < columns; j++) to[j] = ((const unsigned short *)u[i])[j];
    }
}

/* a group of 32 columns by the turned rows from `top` to `bottom`; while its first tiles are summed, the next group's weight is fetched */
static void tw_paired_group(const struct tw_paired *x, long column, long top, long bottom, const int *turned) {
    const long pairs = x->inner / 2, columns = tw_minl(TW_GROUP, x->columns - column);
    float c[TW_GROUP * TW_ROWS] __attribute__((aligned(64))), bias[TW_GROUP];
    for (long j = 0; j < TW_GROUP; j++) bias[j] = x->bias && j < columns ? tw_b2f(x->bias[column + j]) : 0.0f;
    for (long row = top, n; row < bottom; row += 16 * n) {
        n = tw_height(bottom - row);
        for (long j = 0; j < columns; j += SIDE) {
            const unsigned short *w = x->w + (column + j) * x->ldw;
            const char *ahead = row == top && j < 2 * SIDE ? (const char *)(x->w + (column + TW_GROUP) * x->ldw) + 64 * pairs * (j / SIDE) : (const char *)w;
            (n == 3 ? tw_pairs3 : n == 2 ? tw_pairs2 : tw_pairs1)(
                pairs, turned + (row - top) * pairs, (const tw_pair *)w, x->ldw / 2, bias + j, c + TW_ROWS * j, ahead);
        }
        tw_put_rows(x, c, row, n, column);
    }
}

static void tw_paired_groups(long lo, long hi, void *ctx) {
    const struct tw_paired *x = ctx;
    int turned[BLOCK / 4] __attribute__((aligned(64)));
    const long block = BLOCK / (2 * x->inner) / 16 * 16;
    for (long top = 0; top < x->rows; top += block) {
        const long bottom = tw_minl(top + block, x->rows);
        for (long row = top, n; row < bottom; row += 16 * n) { n = tw_height(bottom - row); tw_turn_rows(x, row, n, turned + (row - top) * (x->inner / 2)); }
        for (long group = lo; group < hi; group++) tw_paired_group(x, group * TW_GROUP, top, bottom, turned);
    }
}

int NAME(void **pointers, const long long *sizes) {
    const struct tw_paired x = {
        (const unsigned short *)pointers[0] + sizes[6], (const unsigned short *)pointers[1] + sizes[7],
        sizes[9] ? (const unsigned short *)pointers[3] + sizes[8] : 0, (unsigned short *)pointers[2], sizes[0], sizes[1], sizes[2], sizes[3], sizes[5] };
    tw_parallel_for(0, (x.columns + TW_GROUP - 1) / TW_GROUP, 1 + GRAIN / (1 + x.rows * x.inner * TW_GROUP), tw_paired_groups, (void *)&x);
    return 0;
}
"""
