/* y */
typedef struct { void **pointers; const long long *sizes; int bad; } tw_k0_y_call;
static inline __attribute__((always_inline)) void tw_k0_y_tiles_one(tw_k0_y_call *call, const long lane0, const long lanes) {
    const float *p0 = call->pointers[0];
    float *p1 = call->pointers[1];
    float v0[64];
    for (long j = 0; j < 64; j++) v0[j] = 0;
    for (long block = 0; block < 600; block += 256) {
        const long block_end = tw_minl(block + 256, 600);
        float v0_part[64];
        for (long j = 0; j < 64; j++) v0_part[j] = 0;
        for (long r0 = block; r0 < block_end; r0++) {
#pragma omp simd
            for (long j = 0; j < lanes; j++) {
                const float t0 = p0[(lane0 + j) + 100*r0];
                v0_part[j] += t0;
            }
        }
        for (long j = 0; j < 64; j++) v0[j] += v0_part[j];
    }
#pragma omp simd
    for (long j = 0; j < lanes; j++) {
        p1[(lane0 + j)] = v0[j];
    }
}
static void tw_k0_y_tiles(long lo, long hi, void *context) {
    for (long item = lo; item < hi; item++) {
        const long tiles = (100 + 63) / 64, lane0 = item % tiles * 64, outer = item / tiles;
        if (lane0 + 64 <= 100) tw_k0_y_tiles_one(context, lane0, 64); else tw_k0_y_tiles_one(context, lane0, 100 - lane0);
    }
}
int tw_k0_y(void **pointers, const long long *sizes) {
    tw_k0_y_call call = {pointers, sizes, 0};
    tw_k0_y_tiles(0, 2, &call);
    return call.bad;
}
