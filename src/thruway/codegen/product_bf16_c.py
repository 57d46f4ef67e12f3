"""The kernel of ours for products in bfloat16 by weights as they lie ([columns, inner]): c = a @ w' + bias, for processors with `vdpbf16ps`.

A linear layer's weight has its pairs in order: it is what the tiles of `pairs_c` broadcast, read in order, without packing. Blocks of rows are turned
once, at the price of a hundredth of the product.
"""

from __future__ import annotations

from thruway.codegen.pairs_c import with_pairs

GRAIN = 1 << 21             # multiplications that should at least stay together on one thread
BLOCK_BYTES = 1 << 18       # of turned rows, on the stack, for the second cache


def product_bf16_text(name: str) -> str:
    return with_pairs(TEXT.replace("NAME", name).replace("GRAIN", str(GRAIN)).replace("BLOCK", str(BLOCK_BYTES)))


TEXT = r"""
/* a group of 32 columns by the turned rows from `top` to `bottom`; while its first tiles are summed, the next group's weight is fetched */
static void tw_paired_group(const struct tw_paired *x, long column, long top, long bottom, const int *turned) {
    const long pairs = x->inner / 2, columns = tw_minl(TW_GROUP, x->columns - column);
    float c[TW_GROUP * TW_ROWS] __attribute__((aligned(64))), bias[TW_GROUP];
    for (long j = 0; j < TW_GROUP; j++) bias[j] = 0.0f;
    if (x->bias) for (long j = 0; j < columns; j++) bias[j] = tw_b2f(x->bias[column + j]);
    for (long row = top, n; row < bottom; row += 16 * n) {
        n = tw_height(bottom - row);
        for (long i = row; i < tw_minl(row + 16 * n, x->rows); i++) __builtin_prefetch(x->c + i * x->ldc + column, 1, 2);
        for (long j = 0; j < columns; j += SIDE) {
            const unsigned short *w = x->w + (column + j) * x->ldw;
            const int fetches = row == top && j < 2 * SIDE && column + TW_GROUP < x->columns;
            const char *ahead = fetches ? (const char *)(x->w + (column + TW_GROUP) * x->ldw) + 64 * pairs * (j / SIDE) : (const char *)w;
            (n == 3 ? tw_pairs3 : n == 2 ? tw_pairs2 : tw_pairs1)(
                pairs, turned + (row - top) * pairs, (const tw_pair *)w, x->ldw / 2, 1, bias + j, c + TW_ROWS * j, ahead);
        }
        tw_put_rows(x, c, row, n, column);
    }
}

static void tw_paired_groups(long lo, long hi, void *ctx) {
    const struct tw_paired *x = ctx;
    int turned[BLOCK / 4] __attribute__((aligned(64)));
    const long block = BLOCK / (2 * x->inner) / 16 * 16, first = lo * TW_GROUP, end = tw_minl(first + TW_GROUP, x->columns);
    for (long j = first; j < end; j++) for (long p = 0; p < x->inner; p += 32) __builtin_prefetch(x->w + j * x->ldw + p, 0, 2);
    for (long top = 0; top < x->rows; top += block) {
        const long bottom = tw_minl(top + block, x->rows);
        for (long row = top, n; row < bottom; row += 16 * n) { n = tw_height(bottom - row); tw_turn_rows(x, row, n, turned + (row - top) * (x->inner / 2)); }
        for (long group = lo; group < hi; group++) tw_paired_group(x, group * TW_GROUP, top, bottom, turned);
    }
}

int NAME(void **pointers, const long long *sizes) {
    const struct tw_paired x = {
        (const unsigned short *)pointers[0] + sizes[6], (const unsigned short *)pointers[1] + sizes[7],
        sizes[9] ? (const unsigned short *)pointers[3] + sizes[8] : 0, (unsigned short *)pointers[2],
        sizes[0], sizes[1], sizes[2], sizes[3], sizes[5], sizes[1],
        sizes[10] ? (const unsigned short *)pointers[3 + sizes[9]] + sizes[11] : 0, (int)sizes[12] };
    tw_parallel_for(0, (x.columns + TW_GROUP - 1) / TW_GROUP, 1 + GRAIN / (1 + x.rows * x.inner * TW_GROUP), tw_paired_groups, (void *)&x);
    return 0;
}
"""
