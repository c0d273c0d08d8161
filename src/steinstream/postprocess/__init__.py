"""Operations on kept sets: weights, orders of use, merging."""
