"""Operations on kept sets: weights, order, merging."""
