"""What the kernels of ours in bfloat16 multiply with, for processors with `vdpbf16ps`: tiles of 8 columns by 48, 32 or 16 rows.

A tile multiplies pairs along the inner axis. What lies across a vector are rows, turned in blocks beforehand; a pair of the other operand is what is
broadcast, so that this is read where it lies, at any two strides. Sums stay in registers over the whole inner axis; what they give is turned back
32 columns at a time, rounded once.
"""

from __future__ import annotations

from thruway.core.target import PAIRED_COLUMNS

PAIRS_GUARD = "TW_PAIRED_TILES"


def with_pairs(text: str) -> str:
    """The text of a kernel behind what it multiplies with, which stands once in a unit."""
    return PAIRS.replace("GUARD", PAIRS_GUARD).replace("SIDE", str(PAIRED_COLUMNS)) + text.replace("SIDE", str(PAIRED_COLUMNS))


PAIRS = r"""
#ifndef GUARD
#define GUARD
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

/* c[j][i] = bias[j] plus the sum over the pairs p of a[p][i] * w[j*across + p*down]: SIDE columns j by n vectors of rows i */
#define TW_TILE(n) \
static void TW_BRIEF tw_pairs##n(long pairs, const int *a, const tw_pair *w, long across, long down, const float *bias, float *c, const char *ahead) { \
    tw_f16 s[SIDE][n]; \
    _Pragma("GCC unroll 8") for (int j = 0; j < SIDE; j++) _Pragma("GCC unroll 3") for (int v = 0; v < n; v++) s[j][v] = (tw_f16){0} + bias[j]; \
    for (long p = 0; p < pairs; p++, w += down) { \
        tw_f16 x[n]; \
        _Pragma("GCC unroll 3") for (int v = 0; v < n; v++) x[v] = *(const tw_f16 *)(a + 16 * (n * p + v)); \
        __builtin_prefetch(ahead + 64 * p, 0, 2); \
        _Pragma("GCC unroll 8") for (int j = 0; j < SIDE; j++) { \
            const tw_i16 y = (tw_i16){0} + w[j * across]; \
            _Pragma("GCC unroll 3") for (int v = 0; v < n; v++) TW_DOT(s[j][v], x[v], y); \
        } \
    } \
    _Pragma("GCC unroll 8") for (int j = 0; j < SIDE; j++) \
        _Pragma("GCC unroll 3") for (int v = 0; v < n; v++) *(tw_f16 *)(c + TW_ROWS * j + 16 * v) = s[j][v]; \
}
TW_TILE(1) TW_TILE(2) TW_TILE(3)

/* other: what is added to the rounded product, in c's layout; clamps: what is negative becomes 0 */
struct tw_paired { const unsigned short *a, *w, *bias; unsigned short *c; long rows, columns, inner, lda, ldw, ldc; const unsigned short *other; int clamps; };

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

TWI tw_f16 tw_clamped(tw_f16 x, int clamps) { return clamps ? (tw_f16)((tw_i16)x & ~(x < 0.0f)) : x; }

/* the rounded row u with the other's row added, rounded once more */
TWI tw_i16 tw_joined(tw_i16 u, tw_i16 o, int clamps) {
    const tw_f16 low = (tw_f16)(u << 16) + (tw_f16)(o << 16), high = (tw_f16)(u & -65536) + (tw_f16)(o & -65536);
    return tw_pairs(tw_clamped(low, clamps), tw_clamped(high, clamps));
}

/* rows of fewer than 32 columns */
static void TW_ONCE tw_put_edge(int (*u)[16], unsigned short *to, const unsigned short *other, long rows, long columns, long ldc, int clamps) {
    for (long i = 0; i < rows; i++, to += ldc) {
        unsigned short edge[TW_GROUP] __attribute__((aligned(64))) = {0};
        if (other) {
            for (long j = 0; j < columns; j++) edge[j] = other[i * ldc + j];
            *(tw_i16 *)u[i] = tw_joined(*(const tw_i16 *)u[i], *(const tw_i16 *)edge, clamps);
        }
        for (long j = 0; j < columns; j++) to[j] = ((const unsigned short *)u[i])[j];
    }
}

/* up to 32 columns of n vectors of rows, rounded, turned to where they belong, and joined with what is added */
static void TW_ONCE tw_put_rows(const struct tw_paired *x, const float *c, long row, long n, long column) {
    const long columns = tw_minl(TW_GROUP, x->columns - column);
    const int first = x->clamps && !x->other;
    for (long v = 0; v < n; v++, row += 16) {
        int t[16][16] __attribute__((aligned(64))), u[16][16] __attribute__((aligned(64)));
        const float *from = c + 16 * v;
        for (int k = 0; k < 16; k++) {
            const tw_f16 low = *(const tw_f16 *)(from + 2 * TW_ROWS * k), high = *(const tw_f16 *)(from + 2 * TW_ROWS * k + TW_ROWS);
            *(tw_i16 *)t[k] = tw_pairs(tw_clamped(low, first), tw_clamped(high, first));
        }
        tw_turn16(t, 16, u);
        const long rows = tw_minl(16, x->rows - row);
        unsigned short *to = x->c + row * x->ldc + column;
        const unsigned short *other = x->other ? x->other + row * x->ldc + column : 0;
        if (columns < TW_GROUP) tw_put_edge(u, to, other, rows, columns, x->ldc, x->clamps);
        else if (other)
            for (long i = 0, at = 0; i < rows; i++, at += x->ldc)
                *(tw_i16 *)(to + at) = tw_joined(*(const tw_i16 *)u[i], *(const tw_i16 *)(other + at), x->clamps);
        else
            for (long i = 0; i < rows; i++) *(tw_i16 *)(to + i * x->ldc) = *(const tw_i16 *)u[i];
    }
}
#endif
"""
