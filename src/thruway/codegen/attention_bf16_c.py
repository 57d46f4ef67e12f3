"""The kernel of ours for attention in bfloat16: softmax(q k' * scale) v, for processors with `vdpbf16ps`.

One item is a head. 48 queries at a time, turned, lie across the vectors of the tiles (`pairs_c`), so that the softmax over the keys goes down columns;
scores, weights and sums stay in the first two caches, in float32 until the weights are multiplied. Keys come in blocks of 256, what an earlier block
gave is scaled when a larger score turns up. Keys behind the last query of a block are not looked at where attention is causal.
"""

from __future__ import annotations

from thruway.codegen.pairs_c import with_pairs
from thruway.core.target import ATTENTION_ELEMENTS, ATTENTION_WIDTH

GRAIN = 1 << 20             # multiplications that should at least stay together on one thread


def attention_bf16_text(name: str) -> str:
    text = TEXT.replace("NAME", name).replace("GRAIN", str(GRAIN))
    return with_pairs(text.replace("ELEMENTS", str(ATTENTION_ELEMENTS)).replace("WIDEST", str(ATTENTION_WIDTH)))


TEXT = r"""
enum { TW_KEYS = 256 };

struct tw_attention { void **pointers; const long long *strides; long heads, sharing, queries, keys, width, causal; float scale; };
struct tw_seen {
    float scores[TW_KEYS * TW_ROWS], sums[WIDEST * TW_ROWS], part[WIDEST * TW_ROWS], most[TW_ROWS], fades[TW_ROWS], total[TW_ROWS];
    int weights[TW_KEYS / 2 * TW_ROWS];
} __attribute__((aligned(64)));

/* the tensor's first element of a head; behind its pointer stand offset and strides of batch, head and row */
static unsigned short *tw_head(const struct tw_attention *x, int which, long item) {
    const long long *at = x->strides + 4 * which;
    const long batch = item / x->heads, head = item % x->heads;
    return (unsigned short *)x->pointers[which] + at[0] + batch * at[1] + (which == 1 || which == 2 ? head / x->sharing : head) * at[2];
}

static void tw_tile(long n, long pairs, const int *a, const void *w, long across, long down, float *c) {
    static const float none[SIDE];
    (n == 3 ? tw_pairs3 : n == 2 ? tw_pairs2 : tw_pairs1)(pairs, a, w, across, down, none, c, w);
}

/* to[p][j]: rows 2p and 2p + 1 of v side by side, zeros behind the last */
static void TW_ONCE tw_pair_keys(const unsigned short *v, long ldv, long keys, long width, int *to) {
    for (long key = 0; key < keys; key += 2, to += width) {
        const unsigned short *low = v + key * ldv, *high = key + 1 < keys ? low + ldv : 0;
        if (high) for (long j = 0; j < width; j++) to[j] = (int)(low[j] | (unsigned)high[j] << 16);
        else for (long j = 0; j < width; j++) to[j] = low[j];
    }
    for (long j = 0; j < SIDE / 2 * width; j++) to[j] = 0;
}

/* scores[j][i] of key start + j and query row + i, -inf where it is not seen, and the largest of each query */
static void TW_ONCE tw_score(
        const struct tw_attention *x, const unsigned short *k, const unsigned short *tail, const int *q, long row, long n, long start, long keys,
        struct tw_seen *s) {
    const long ldk = x->strides[7], whole = x->keys / SIDE * SIDE;
    float most[TW_ROWS];
    for (long j = 0; j < keys; j += SIDE)
        tw_tile(n, x->width / 2, q, start + j < whole ? k + (start + j) * ldk : tail, (start + j < whole ? ldk : x->width) / 2, 1, s->scores + TW_ROWS * j);
    for (long i = 0; i < TW_ROWS; i++) most[i] = s->most[i];
    for (long j = 0; j < keys; j++) {
        float *y = s->scores + TW_ROWS * j;
        const long key = start + j, first = key >= x->keys ? TW_ROWS : x->causal ? key - row : 0;       /* the first query that sees it */
        if (first <= 0)
            for (long v = 0; v < 16 * n; v += 16)
#pragma omp simd
                for (long i = v; i < v + 16; i++) { y[i] *= x->scale; most[i] = y[i] > most[i] ? y[i] : most[i]; }
        else
            for (long v = 0; v < 16 * n; v += 16)
#pragma omp simd
                for (long i = v; i < v + 16; i++) { y[i] = i < first ? -__builtin_inff() : y[i] * x->scale; most[i] = y[i] > most[i] ? y[i] : most[i]; }
    }
#pragma omp simd
    for (long i = 0; i < TW_ROWS; i++) { s->fades[i] = tw_exp_neg(s->most[i] - most[i]); s->most[i] = most[i]; s->total[i] *= s->fades[i]; }
}

/* the weights, two keys side by side */
static void TW_ONCE tw_weigh(long n, long keys, struct tw_seen *s) {
    for (long v = 0; v < n; v++) {
        float *most = s->most + 16 * v, *total = s->total + 16 * v;
        for (long p = 0; p < keys / 2; p++) {
            float *low = s->scores + 2 * TW_ROWS * p + 16 * v, *high = low + TW_ROWS;
#pragma omp simd
            for (long i = 0; i < 16; i++) {
                const float a = tw_exp_neg(low[i] - most[i]), b = tw_exp_neg(high[i] - most[i]);
                total[i] += a + b; low[i] = a; high[i] = b;
            }
            *(tw_i16 *)(s->weights + 16 * (n * p + v)) = tw_pairs(*(const tw_f16 *)low, *(const tw_f16 *)high);
        }
    }
}

/* sums[j][i], what came before faded */
static void TW_ONCE tw_gather(const struct tw_attention *x, const int *v, long n, long keys, struct tw_seen *s) {
    for (long j = 0; j < x->width; j += SIDE) tw_tile(n, keys / 2, s->weights, v + j, 1, x->width, s->part + TW_ROWS * j);
    for (long j = 0; j < x->width; j++)
#pragma omp simd
        for (long i = 0; i < TW_ROWS; i++) s->sums[TW_ROWS * j + i] = s->sums[TW_ROWS * j + i] * s->fades[i] + s->part[TW_ROWS * j + i];
}

/* what n vectors of queries from `row` on attend to; `tail`: the last keys, filled up with zeros */
static void TW_ONCE tw_attend(
        const struct tw_attention *x, const struct tw_paired *rows, long row, long n, const unsigned short *k, const unsigned short *tail, const int *v) {
    int q[WIDEST / 2 * TW_ROWS] __attribute__((aligned(64)));
    struct tw_seen s;
    const long last = x->causal ? tw_minl(x->keys, row + 16 * n) : x->keys;
    tw_turn_rows(rows, row, n, q);
    for (long i = 0; i < TW_ROWS; i++) { s.most[i] = -3.4028235e38f; s.total[i] = 0.0f; }
    for (long i = 0; i < WIDEST * TW_ROWS; i++) s.sums[i] = s.part[i] = 0.0f;
    for (long start = 0; start < last; start += TW_KEYS) {
        const long keys = (tw_minl(TW_KEYS, last - start) + SIDE - 1) / SIDE * SIDE;
        tw_score(x, k, tail, q, row, n, start, keys, &s);
        tw_weigh(n, keys, &s);
        tw_gather(x, v + start / 2 * x->width, n, keys, &s);
    }
    for (long j = 0; j < x->width; j++)
#pragma omp simd
        for (long i = 0; i < TW_ROWS; i++) s.sums[TW_ROWS * j + i] /= s.total[i];
    for (long j = 0; j < x->width; j += TW_GROUP) tw_put_rows(rows, s.sums + TW_ROWS * j, row, n, j);
}

static void tw_attend_heads(long lo, long hi, void *ctx) {
    const struct tw_attention *x = ctx;
    int v[ELEMENTS / 2 + SIDE / 2 * WIDEST] __attribute__((aligned(64)));
    unsigned short tail[SIDE * WIDEST];
    for (long item = lo; item < hi; item++) {
        const struct tw_paired rows = {tw_head(x, 0, item), 0, 0, tw_head(x, 3, item), x->queries, x->width, x->width, x->strides[3], 0, x->strides[15]};
        const unsigned short *k = tw_head(x, 1, item);
        const long whole = x->keys / SIDE * SIDE;
        tw_pair_keys(tw_head(x, 2, item), x->strides[11], x->keys, x->width, v);
        for (long j = 0; j < SIDE; j++)
            for (long i = 0; i < x->width; i++) tail[j * x->width + i] = whole + j < x->keys ? k[(whole + j) * x->strides[7] + i] : 0;
        for (long row = 0, n; row < x->queries; row += 16 * n) { n = tw_height(x->queries - row); tw_attend(x, &rows, row, n, k, tail, v); }
    }
}

int NAME(void **pointers, const long long *sizes) {
    const struct tw_attention x = {pointers, sizes + 8, sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], tw_bits_uf((unsigned)sizes[7])};
    tw_parallel_for(0, sizes[0] * x.heads, 1 + GRAIN / (1 + x.queries * x.keys * x.width), tw_attend_heads, (void *)&x);
    return 0;
}
"""
