/* Whole steps of capped thinning with plain double sums: add a draw, drop the one with the greatest influence.
 *
 * A point's influence is half its diagonal entry plus the other entries of its row (see store.py in the engine).
 * Points lie in tiles of 16; spare lanes have influence -infinity and are never the greatest.
 */
#include "stein.h"

enum { WIDTH = 2, TILE = WIDTH * LANES };

struct kept {
    double *points, *influence, *row;
    long *ids, count;
    double parameter;
};

struct found {
    double sum, greatest;
};

#ifdef __AVX512F__
INLINE vector larger(vector a, vector b) { return (vector)_mm512_max_pd((__m512d)a, (__m512d)b); }
INLINE int any_equal(vector a, double b) { return _mm512_cmp_pd_mask((__m512d)a, _mm512_set1_pd(b), _CMP_EQ_OQ); }
#else
INLINE vector larger(vector a, vector b) {
    for (int i = 0; i < LANES; i++) a[i] = a[i] > b[i] ? a[i] : b[i];
    return a;
}
INLINE int any_equal(vector a, double b) {
    int hits = 0;
    for (int i = 0; i < LANES; i++) hits += a[i] == b;
    return hits;
}
#endif

INLINE double *coordinates(struct kept *kept, long slot) {
    return kept->points + slot / TILE * 2 * D * TILE + slot % TILE;
}

/* Add a draw's kernel values to all influences, or (sign -1) subtract them; their sum, and the greatest influence. */
INLINE struct found sweep(struct kept *kept, const double *x, const double *s, int sign) {
    const vector *tiles = (const vector *)kept->points;
    vector *influence = (vector *)kept->influence, *row = (vector *)kept->row;
    vector sums[WIDTH] = {{0}}, most[WIDTH];
    UNROLL for (int w = 0; w < WIDTH; w++) most[w] = (vector){0} - INFINITY;
    long whole = kept->count / TILE;
    for (long t = 0; t * TILE < kept->count; t++) {
        vector values[WIDTH];
        compare(IMQ, WIDTH, kept->parameter, tiles + t * 2 * D * WIDTH, x, s, values);
        UNROLL for (int w = 0; w < WIDTH; w++) {
            long at = t * WIDTH + w;
            influence[at] += sign * values[w];
            most[w] = larger(influence[at], most[w]);
            if (sign > 0) {
                row[at] = values[w];
                if (t < whole) sums[w] += values[w];
            }
        }
    }
    struct found found = {0, -INFINITY};
    for (long i = whole * TILE; sign > 0 && i < kept->count; i++) found.sum += kept->row[i];
    for (int w = 0; w < WIDTH; w++)
        for (int i = 0; i < LANES; i++) {
            found.sum += sums[w][i];
            found.greatest = most[w][i] > found.greatest ? most[w][i] : found.greatest;
        }
    return found;
}

/* The slot that has this influence. */
INLINE long find(const struct kept *kept, double influence) {
    for (long first = 0; first < kept->count; first += LANES)
        if (any_equal(*(const vector *)(kept->influence + first), influence))
            for (long slot = first;; slot++)
                if (kept->influence[slot] == influence) return slot;
    return -1;
}

INLINE void undo(struct kept *kept) {
    vector *influence = (vector *)kept->influence, *row = (vector *)kept->row;
    for (long at = 0; at * LANES < kept->count; at++) influence[at] -= row[at];
}

INLINE void step(struct kept *kept, const double *x, const double *s, long id) {
    long new = kept->count++;
    double *place = coordinates(kept, new), gone[2][D];
    for (long k = 0; k < D; k++) place[2 * k * TILE] = x[k], place[(2 * k + 1) * TILE] = s[k];
    kept->ids[new] = id;

    struct found found = sweep(kept, x, s, 1);
    kept->influence[new] = found.sum - 0.5 * kept->row[new];
    long slot = find(kept, fmax(found.greatest, kept->influence[new]));
    if (slot == new) {
        kept->influence[--kept->count] = -INFINITY;
        undo(kept);
        return;
    }
    double *from = place, *to = coordinates(kept, slot);
    for (long k = 0; k < D; k++) {
        gone[0][k] = to[2 * k * TILE], gone[1][k] = to[(2 * k + 1) * TILE];
        to[2 * k * TILE] = from[2 * k * TILE], to[(2 * k + 1) * TILE] = from[(2 * k + 1) * TILE];
    }
    kept->ids[slot] = id;
    kept->influence[slot] = kept->influence[new];
    kept->influence[--kept->count] = -INFINITY;
    sweep(kept, gone[0], gone[1], -1);
}

void steps(double *points, double *influence, double *row, long *ids, long count, double parameter, const double *draws,
           const double *scores, long first, long number) {
    struct kept kept = {points, influence, row, ids, count, parameter};
    for (long i = 0; i < number; i++) step(&kept, draws + i * D, scores + i * D, first + i);
}
