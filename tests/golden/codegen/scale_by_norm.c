/* s, y */
typedef struct { void **pointers; const long long *sizes; int bad; double v0_parts[64]; float v0; } tw_k0_y_call;
static void tw_k0_y_phase0(long lo, long hi, void *context) {
    tw_k0_y_call *call = context;
    const float *p0 = call->pointers[0];
    float *p1 = call->pointers[1];
    for (long part = lo; part < hi; part++) {
        const long begin = (120000) * part / 64, end = (120000) * (part + 1) / 64;
        double v0_acc = 0;
        for (long block = begin; block < end; block += 4096) {
            float v0_part = 0;
            const long block_end = tw_minl(block + 4096, end);
            {
                float v0_lane[64];
                for (long j = 0; j < 64; j++) v0_lane[j] = 0;
                long strip = block;
#pragma GCC unroll 1
                for (; strip + 64 <= block_end; strip += 64) {
#pragma omp simd
                    for (long r1 = 0; r1 < 64; r1++) {
                        const float t0 = p0[(strip + r1)];
                        const float t1 = t0 * t0;
                        v0_lane[r1] += t1;
                    }
                }
#pragma omp simd reduction(+:v0_part)
                for (long j = 0; j < 64; j++) {
                    v0_part += v0_lane[j];
                }
                for (long r1 = strip; r1 < block_end; r1++) {
                    const float t2 = p0[r1];
                    const float t3 = t2 * t2;
                    v0_part += t3;
                }
            }
            v0_acc += v0_part;
        }
        call->v0_parts[part] = v0_acc;
    }
}
static void tw_k0_y_phase1(long lo, long hi, void *context) {
    tw_k0_y_call *call = context;
    const float *p0 = call->pointers[0];
    float *p1 = call->pointers[1];
    const float v0 = call->v0;
    const float t1 = __builtin_sqrtf(v0);
    for (long part = lo; part < hi; part++) {
        const long begin = (120000) * part / 64, end = (120000) * (part + 1) / 64;
#pragma omp simd
        for (long r1 = begin; r1 < end; r1++) {
            const float t0 = p0[r1];
            const float t2 = t0 / t1;
            p1[r1] = t2;
        }
    }
}
int tw_k0_y(void **pointers, const long long *sizes) {
    tw_k0_y_call call = {pointers, sizes, 0};
    tw_parallel_for(0, 64, 17, tw_k0_y_phase0, &call);
    { double total = 0;
      for (int k = 0; k < 64; k++) { const double x = call.v0_parts[k]; total += x; }
      call.v0 = (float)total; }
    tw_parallel_for(0, 64, 17, tw_k0_y_phase1, &call);
    return call.bad;
}
