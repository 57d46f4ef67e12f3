"""The C functions that find mean and squared distances of rows, in eager's order of operations (see `moments_c`).

A chunk is sixteen Welford steps in eight lanes; chunks are joined by the formula of Chan, Golub and LeVeque as a tree, values behind the
last vector are taken one by one, and the lanes join them one after the other.
"""

TEXT = r"""
TWI float tw_fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

TWI float tw_share(long j) {
    static const float shares[16] = {1.0f, 1.0f / 2, 1.0f / 3, 1.0f / 4, 1.0f / 5, 1.0f / 6, 1.0f / 7, 1.0f / 8,
                                     1.0f / 9, 1.0f / 10, 1.0f / 11, 1.0f / 12, 1.0f / 13, 1.0f / 14, 1.0f / 15, 1.0f / 16};
    return shares[j];
}

/* one step of a lane: the mean of j + 1 values and their squared distances from it */
#define tw_step(v, mean, squares, j) do { \
    const float tw_d = (v) - mean; mean = tw_fused(tw_share(j), tw_d, mean); squares = tw_fused(tw_d, (v) - mean, squares); } while (0)

TWI void tw_chunk(const float *x, const long steps, const long step, const long lanes, float *mean, float *squares) {
#pragma omp simd
    for (long k = 0; k < lanes; k++) {
        float m = 0, s = 0;
#pragma GCC unroll 4
        for (long j = 0; j < steps; j++) tw_step(x[j * step + k], m, s, j);
        mean[k] = m, squares[k] = s;
    }
}

TWI void tw_four_chunks(const float *x, const float *y, const float *z, const float *w, const long step, float (*mean)[8], float (*squares)[8]) {
#pragma omp simd
    for (long k = 0; k < 8; k++) {
        float m0 = 0, m1 = 0, m2 = 0, m3 = 0, s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma GCC unroll 4
        for (long j = 0; j < 16; j++) {
            tw_step(x[j * step + k], m0, s0, j);
            tw_step(y[j * step + k], m1, s1, j);
            tw_step(z[j * step + k], m2, s2, j);
            tw_step(w[j * step + k], m3, s3, j);
        }
        mean[0][k] = m0, mean[1][k] = m1, mean[2][k] = m2, mean[3][k] = m3;
        squares[0][k] = s0, squares[1][k] = s1, squares[2][k] = s2, squares[3][k] = s3;
    }
}

TWI void tw_two_chunks(const float *x, const float *y, const long step, float (*mean)[8], float (*squares)[8]) {
#pragma omp simd
    for (long k = 0; k < 8; k++) {
        float m0 = 0, m1 = 0, s0 = 0, s1 = 0;
#pragma GCC unroll 4
        for (long j = 0; j < 16; j++) {
            tw_step(x[j * step + k], m0, s0, j);
            tw_step(y[j * step + k], m1, s1, j);
        }
        mean[0][k] = m0, mean[1][k] = m1;
        squares[0][k] = s0, squares[1][k] = s1;
    }
}

/* moments of `more` values joined into those of `count`, lane by lane; what they come to */
TWI long tw_join(const long more, const float *mean, const float *squares, const long count, float *into_mean, float *into_squares, const long lanes) {
    const float share = (float)more / (float)(count + more), before = (float)count;
    if (count == 0) {
        __builtin_memcpy(into_mean, mean, 4 * lanes);
        __builtin_memcpy(into_squares, squares, 4 * lanes);
    } else if (more) {
#pragma omp simd
        for (long k = 0; k < lanes; k++) {
            const float d = mean[k] - into_mean[k], part = share * d;
            into_squares[k] = tw_fused(d * before, part, into_squares[k] + squares[k]);
            into_mean[k] = into_mean[k] + part;
        }
    }
    return count + more;
}

/* after `done` chunks, full levels go up one by one: chunks are joined as a tree */
TWI void tw_carry(long depth, long done, long *counts, float *mean, float *squares, const long lanes) {
    for (long level = 1; level < depth && (done & 1) == 0; level++, done >>= 1) {
        const long below = (level - 1) * lanes, here = level * lanes;
        counts[level] = tw_join(counts[level - 1], mean + below, squares + below, counts[level], mean + here, squares + here, lanes);
        counts[level - 1] = 0;
    }
}

TWI long tw_start(long n, long width, long *counts, float *mean, float *squares, const long lanes) {
    long depth = 1;
    while ((16 * width) << depth < n - n % width) depth++;
    for (long level = 0; level < depth; level++) counts[level] = 0;
    for (long k = 0; k < lanes; k++) mean[k] = squares[k] = 0;
    return depth;
}

TWI void tw_finish(long depth, long *counts, float *mean, float *squares, const long lanes) {
    for (long level = 1; level < depth; level++)
        counts[0] = tw_join(counts[level], mean + level * lanes, squares + level * lanes, counts[0], mean, squares, lanes);
}

/* one value after all others, and one lane joined into a point's moments */
#define tw_take(v, mean, squares, count, fused) do { \
    const float tw_d = (v) - mean; mean += tw_d / (float)(count); \
    squares = fused ? tw_fused(tw_d, (v) - mean, squares) : squares + tw_d * ((v) - mean); } while (0)

#define tw_take_lane(other, others, more, mean, squares, count) do { \
    const float tw_share = (more) + (count) == 0 ? 0.0f : (float)(more) / (float)((more) + (count)), tw_d = (other) - mean; \
    mean = tw_fused(tw_share, tw_d, mean); squares += tw_fused(tw_d * tw_d * tw_share, (float)(count), others); } while (0)

/* what is left of a row behind its last vector, then the eight lanes of all vectors, in which `more` values each have gone */
TWI void tw_row_end(const float *x, const long n, const int fused, const long more, const float *mean, const float *squares,
                    float *mean_at, float *squares_at) {
    float m = 0, s = 0;
    for (long j = 0; j < n; j++) tw_take(x[j], m, s, j + 1, fused);
#pragma GCC unroll 8
    for (long k = 0; k < 8; k++) tw_take_lane(mean[k], squares[k], more, m, s, n + k * more);
    *mean_at = m, *squares_at = s;
}

/* mean and sum of squared distances of x[0 … n); width 8, or 16 where eager's rows are of two bytes an element */
static void tw_row_moments(const float *x, const long n, const long width, const int fused, float *mean_at, float *squares_at) {
    float mean[40][8], squares[40][8], means[8], others[8];
    long counts[40];
    const long vectors = n / width, depth = tw_start(n, width, counts, mean[0], squares[0], 8);
    for (long i = 0; i * 16 < vectors; i++) {
        const long steps = tw_minl(vectors - i * 16, 16);
        for (long part = 0; part < width; part += 8) {
            const float *from = x + i * 16 * width + part;
            if (steps == 16) tw_chunk(from, 16, width, 8, means, others); else tw_chunk(from, steps, width, 8, means, others);
            counts[0] = tw_join(steps, means, others, counts[0], mean[0], squares[0], 8);
        }
        tw_carry(depth, i + 1, counts, mean[0], squares[0], 8);
    }
    tw_finish(depth, counts, mean[0], squares[0], 8);
    tw_row_end(x + vectors * width, n % width, fused, vectors * width / 8, mean[0], squares[0], mean_at, squares_at);
}

/* the same for 64 rows side by side, sixteen at a time: element k of row j is x[64 * k + j] */
static void tw_lane_moments(const float *x, const long n, const long width, const int fused, float *mean_at, float *squares_at) {
    float mean[40][128], squares[40][128], means[128], others[128];
    long counts[40];
    const long vectors = n / width, more = vectors * width / 8;
    for (long at = 0; at < 64; at += 16) {
        const long depth = tw_start(n, width, counts, mean[0], squares[0], 128);
        for (long i = 0; i * 16 < vectors; i++) {
            const long steps = tw_minl(vectors - i * 16, 16);
            for (long part = 0; part < width; part += 8) {
                for (long k = 0; k < 8; k++) {
                    const float *from = x + 64 * (i * 16 * width + part + k) + at;
                    if (steps == 16) tw_chunk(from, 16, 64 * width, 16, means + 16 * k, others + 16 * k);
                    else tw_chunk(from, steps, 64 * width, 16, means + 16 * k, others + 16 * k);
                }
                counts[0] = tw_join(steps, means, others, counts[0], mean[0], squares[0], 128);
            }
            tw_carry(depth, i + 1, counts, mean[0], squares[0], 128);
        }
        tw_finish(depth, counts, mean[0], squares[0], 128);
#pragma omp simd
        for (long j = 0; j < 16; j++) {
            float m = 0, s = 0;
            for (long k = 0; k < n % width; k++) tw_take(x[64 * (vectors * width + k) + at + j], m, s, k + 1, fused);
            for (long k = 0; k < 8; k++) tw_take_lane(mean[0][16 * k + j], squares[0][16 * k + j], more, m, s, n % width + k * more);
            mean_at[at + j] = m, squares_at[at + j] = s;
        }
    }
}
"""
