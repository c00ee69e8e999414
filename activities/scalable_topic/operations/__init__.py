"""Operations on scalable topics: one file for each verb or pair of verbs."""
