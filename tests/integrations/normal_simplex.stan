parameters {
  real mu;
  real<lower=0> sigma;
  simplex[3] w;
}
model {
  mu ~ normal(0, 1);
  sigma ~ lognormal(0, 1);
  w ~ dirichlet([1, 2, 3]');
}
