/* The Stein kernel of one draw with many points, as fast as C allows. Shared by row.c and step.c.
 *
 * Points lie in tiles of 8 * width: for each coordinate first the tile's coordinates, then its scores, so that memory
 * is read in one stream. The dimension D is given to the compiler (-DD=2), kernel and width are constants once all is
 * inlined: loops over them can be unrolled.
 */
#include <math.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef double vector __attribute__((vector_size(64)));
enum { LANES = 8 };
enum kernel { IMQ, ROUGH, RBF }; /* ROUGH: IMQ with an inverse square root that is not correctly rounded */

INLINE vector root(vector a) {
    for (int i = 0; i < LANES; i++) a[i] = __builtin_sqrt(a[i]);
    return a;
}

/* libm's exp, one lane after the other; with -ffast-math gcc takes libmvec's, all lanes at once. */
INLINE vector exponential(vector a) {
    double lane[LANES] __attribute__((aligned(64)));
    *(vector *)lane = a;
    for (int i = 0; i < LANES; i++) lane[i] = exp(lane[i]);
    return *(vector *)lane;
}

#ifdef __AVX512F__
#include <immintrin.h>
/* 1 / sqrt(a) without dividing: 14 bits from a table in the processor, then two Newton steps. */
INLINE vector inverse_root(vector a) {
    vector y = (vector)_mm512_rsqrt14_pd((__m512d)a), half = 0.5 * a;
    y = y * (1.5 - half * y * y);
    return y * (1.5 - half * y * y);
}
#else
INLINE vector inverse_root(vector a) { return 1.0 / root(a); }
#endif

/* k0 from |x - y|^2, <s_x - s_y, x - y> + d and <s_x, s_y>; parameter: c^2 (IMQ) or 1 / 2h (RBF). */
INLINE vector stein(enum kernel kernel, double parameter, vector distance, vector cross, vector scores) {
    if (kernel == RBF) {
        double rate = 2.0 * parameter;
        return exponential(-parameter * distance) * (scores + rate * (cross - rate * distance));
    }
    vector w, w2;
    if (kernel == ROUGH) {
        w = inverse_root(distance + parameter);
        w2 = w * w;
    } else {
        w2 = 1.0 / (distance + parameter);
        w = root(w2);
    }
    return w * (scores + w2 * (cross - 3.0 * w2 * distance));
}

/* The kernel values of one tile. */
INLINE void compare(enum kernel kernel, int width, double parameter, const vector *tile, const double *x,
                    const double *s, vector *values) {
    vector distance[width], cross[width], scores[width];
    UNROLL for (int w = 0; w < width; w++) {
        distance[w] = scores[w] = (vector){0};
        cross[w] = (vector){0} + D;
    }
    for (long k = 0; k < D; k++) {
        const vector *there = tile + 2 * k * width, *slope = there + width;
        UNROLL for (int w = 0; w < width; w++) {
            vector apart = x[k] - there[w];
            distance[w] += apart * apart;
            cross[w] += (s[k] - slope[w]) * apart;
            scores[w] += s[k] * slope[w];
        }
    }
    UNROLL for (int w = 0; w < width; w++) values[w] = stein(kernel, parameter, distance[w], cross[w], scores[w]);
}
