/* A row of Stein kernel values in several layouts, for row.py to find the fastest. */
#include "stein.h"

#define ARGUMENTS                                                                                                 \
    const double *restrict points, const double *restrict x, const double *restrict s, double parameter, long n, \
        double *restrict row, long times
#define GIVEN points, x, s, parameter, n, row, times

/* The same row many times over, so that calls from Python do not count. The barrier hides that it is the same. */
#define REPEAT for (; times > 0; times--, ({ __asm__ volatile("" ::: "memory"); }))

INLINE void tiles(enum kernel kernel, int width, ARGUMENTS) {
    REPEAT for (long t = 0; t < n / (LANES * width); t++)
        compare(kernel, width, parameter, (const vector *)points + t * 2 * D * width, x, s, (vector *)row + t * width);
}

/* For each coordinate all points' coordinates, then all their scores: plain loops, left to the compiler. */
INLINE void columns(enum kernel kernel, ARGUMENTS) {
    REPEAT for (long i = 0; i < n; i++) {
        double distance = 0, cross = D, scores = 0;
        UNROLL for (long k = 0; k < D; k++) {
            double apart = x[k] - points[2 * k * n + i], slope = points[(2 * k + 1) * n + i];
            distance += apart * apart;
            cross += (s[k] - slope) * apart;
            scores += s[k] * slope;
        }
        if (kernel == RBF) {
            double rate = 2.0 * parameter;
            row[i] = exp(-parameter * distance) * (scores + rate * (cross - rate * distance));
        } else {
            double w2 = 1.0 / (distance + parameter), w = sqrt(w2);
            row[i] = w * (scores + w2 * (cross - 3.0 * w2 * distance));
        }
    }
}

void imq_tiles_8(ARGUMENTS) { tiles(IMQ, 1, GIVEN); }
void imq_tiles_16(ARGUMENTS) { tiles(IMQ, 2, GIVEN); }
void imq_tiles_32(ARGUMENTS) { tiles(IMQ, 4, GIVEN); }
void imq_columns(ARGUMENTS) { columns(IMQ, GIVEN); }
void rough_tiles_8(ARGUMENTS) { tiles(ROUGH, 1, GIVEN); }
void rough_tiles_16(ARGUMENTS) { tiles(ROUGH, 2, GIVEN); }
void rough_tiles_32(ARGUMENTS) { tiles(ROUGH, 4, GIVEN); }
void rbf_tiles_8(ARGUMENTS) { tiles(RBF, 1, GIVEN); }
void rbf_tiles_16(ARGUMENTS) { tiles(RBF, 2, GIVEN); }
void rbf_tiles_32(ARGUMENTS) { tiles(RBF, 4, GIVEN); }
void rbf_columns(ARGUMENTS) { columns(RBF, GIVEN); }
