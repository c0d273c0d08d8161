# Thin the draws of a fit with steinstream, from R.
#
#     source(system2("steinstream", "r-file", stdout = TRUE))
#     small <- thin_draws(fit, size = 200)
#     posterior::summarise_draws(small, "mean", "sd")
#
# The R package posterior is required, and rstan for the scores of its fits. If R does not find the program steinstream:
# options(steinstream.command = "/path/to/steinstream").

#' Keep the draws of a fit that represent its posterior.
#'
#' @param fit A fit of rstan, brms or rstanarm, a draws object of the package posterior, or a data frame of draws with
#'   the columns `.chain` and `.iteration` if there are several chains.
#' @param size Number of draws to keep. Default: about the square root of the number of draws.
#' @param ... Options of `steinstream thin`, with underscores: `weights = TRUE`, `kernel = "rbf"`, `on_bad = "skip"`.
#' @param scores Whether to compute the scores of the draws. Default: if the fit allows it. Without scores, the kept
#'   draws represent the chains; with scores they represent the posterior.
#' @param variables Names of the variables that represent a draw, if there are no scores. Default: the parameters.
#' @param model,cores See `draws_and_scores`.
#' @param latent_dynamics CmdStan's diagnostic files, one per chain, which contain the scores. With cmdstanr:
#'   `thin_draws(fit$draws(), latent_dynamics = fit$latent_dynamics_files())`.
#' @param quiet Whether to print warnings only.
#' @return A `draws_df` with all variables of the fit at the kept draws, as a single chain. Weights, if there are any,
#'   are those of `posterior::weight_draws`. The attribute `source` holds chain and iteration of each draw in the fit.
thin_draws <- function(fit, size = NULL, ..., scores = NULL, variables = NULL, model = fit, latent_dynamics = NULL,
                       cores = getOption("mc.cores", 1L), quiet = FALSE) {
  command <- .steinstream_command()
  all_draws <- .all_draws(fit)
  folder <- tempfile("steinstream")
  dir.create(folder)
  on.exit(unlink(folder, recursive = TRUE))
  files <- latent_dynamics
  if (is.null(files)) {
    table <- NULL
    if (!isFALSE(scores)) {
      table <- tryCatch(draws_and_scores(fit, model, cores), steinstream_no_scores = function(reason) {
        if (isTRUE(scores)) stop(reason)
        if (!quiet) message("Thinning without scores. ", conditionMessage(reason))
        NULL
      })
    }
    if (is.null(table)) table <- .without_scores(all_draws, fit, variables)
    files <- file.path(folder, "draws.csv")
    .write_table(table, files)
  }
  output <- file.path(folder, "kept.csv")
  options <- c(if (!is.null(size)) c("--size", .as_text(size)), if (quiet) "--quiet", .as_options(list(...)))
  .run_steinstream(command, c("thin", files, "-o", output, "--layout", "r", options))
  kept <- utils::read.csv(output, check.names = FALSE)
  .at_kept_draws(all_draws, kept)
}

#' Compute the unconstrained draws of a fit and the gradients of the log posterior density there, Jacobian included.
#'
#' @param fit A fit of rstan, brms or rstanarm.
#' @param model A stanfit of the same model and data whose compiled model is loaded. Default: the fit. After `readRDS`,
#'   make it with `rstan::sampling(rstan::stan_model(model_code = rstan::get_stancode(fit)), data = data, chains = 0)`.
#' @param cores Number of processes.
#' @return A data frame with one row per draw and the columns `.chain`, `.iteration`, NAME_unc, ..., score_NAME_unc, ...
#'   `write.csv(..., row.names = FALSE)` makes a file that `steinstream` reads.
draws_and_scores <- function(fit, model = fit, cores = getOption("mc.cores", 1L)) {
  fit <- .stanfit(fit)
  model <- .stanfit(model)
  if (is.null(fit) || is.null(model)) {
    .no_scores("Scores can be computed for fits of rstan, and of brms with the backend rstan.")
  }
  elements <- .unconstrained_names(model)
  parameters <- unique(sub("[.][0-9.]+$", "", elements))
  missing <- setdiff(parameters, fit@sim$pars_oi)
  if (length(missing)) {
    .no_scores(
      "The fit does not contain the parameters ", paste(missing, collapse = ", "), " of its model. Save all parameters: ",
      "in rstan without the argument pars, in brms with save_pars = save_pars(all = TRUE)."
    )
  }
  values <- rstan::extract(fit, permuted = FALSE, inc_warmup = FALSE)
  iterations <- dim(values)[1]
  chains <- dim(values)[2]
  rows <- matrix(values, iterations * chains)  # chain after chain
  # The columns are found by position, because brms renames them.
  sizes <- fit@sim$dims_oi
  ends <- cumsum(vapply(sizes, prod, 0))
  places <- Map(function(end, size) end - prod(size) + seq_len(prod(size)), ends, sizes)
  chosen <- match(parameters, fit@sim$pars_oi)
  evaluate <- function(row) {
    parts <- Map(function(at, size) if (length(size)) array(row[at], size) else row[at], places[chosen], sizes[chosen])
    at <- rstan::unconstrain_pars(model, stats::setNames(parts, parameters))
    gradient <- rstan::grad_log_prob(model, at, adjust_transform = TRUE)
    c(at, gradient, attr(gradient, "log_prob"))
  }
  cores <- if (.Platform$OS.type == "windows") 1L else max(1L, cores)
  found <- parallel::mclapply(seq_len(nrow(rows)), function(i) evaluate(rows[i, ]), mc.cores = cores)
  failed <- Find(function(one) inherits(one, "try-error"), found)
  if (!is.null(failed)) stop(failed)
  names <- sub("^([^.]*)", "\\1_unc", elements)
  table <- matrix(unlist(found), nrow(rows), byrow = TRUE)
  log_density <- rows[, match("lp__", fit@sim$fnames_oi)]
  if (any(abs(table[, ncol(table)] - log_density) > 1e-4 * (1 + abs(log_density)))) {
    stop("The log density of the model is not the lp__ of the draws: pass the model and the data of the fit.", call. = FALSE)
  }
  table <- table[, -ncol(table), drop = FALSE]
  colnames(table) <- c(names, paste0("score_", names))
  data.frame(
    .chain = rep(seq_len(chains), each = iterations), .iteration = rep(seq_len(iterations), chains), table,
    check.names = FALSE
  )
}

.no_scores <- function(...) {
  stop(structure(
    class = c("steinstream_no_scores", "error", "condition"), list(message = paste0(...), call = NULL)
  ))
}

# The stanfit of a fit of rstan, brms or rstanarm; NULL for other objects.
.stanfit <- function(fit) {
  if (inherits(fit, "brmsfit")) fit <- fit$fit
  if (inherits(fit, "stanreg")) fit <- fit$stanfit
  if (inherits(fit, "stanfit")) fit
}

# The names of the unconstrained parameters: mu, sigma, w.1, w.2.
.unconstrained_names <- function(model) {
  tryCatch(model@.MISC$stan_fit_instance$unconstrained_param_names(FALSE, FALSE), error = function(problem) {
    .no_scores(
      "The compiled model of the fit is not loaded, for example after readRDS. Pass model = sampling(stan_model(model_code = ",
      "get_stancode(fit)), data = data, chains = 0)."
    )
  })
}

# All draws of a fit as a draws_df.
.all_draws <- function(fit) {
  if (!requireNamespace("posterior", quietly = TRUE)) {
    stop("The R package posterior is required: install.packages(\"posterior\").", call. = FALSE)
  }
  if (inherits(fit, "stanreg")) fit <- as.array(fit)
  if (inherits(fit, "stanfit")) fit <- rstan::extract(fit, permuted = FALSE, inc_warmup = FALSE)
  if (!inherits(fit, c("draws", "brmsfit", "data.frame", "array", "matrix"))) {
    stop(
      "Expected a fit of rstan, brms or rstanarm, a draws object or a data frame, got ", class(fit)[1],
      ". With cmdstanr, pass fit$draws().", call. = FALSE
    )
  }
  posterior::as_draws_df(fit)
}

# The variables that represent a draw, without scores.
.without_scores <- function(all_draws, fit, variables) {
  if (is.null(variables)) {
    known <- posterior::variables(all_draws)
    variables <- known
    stanfit <- if (inherits(fit, "stanfit")) fit
    if (!is.null(stanfit)) {  # without generated quantities, if the model is loaded
      elements <- tryCatch(.unconstrained_names(stanfit), error = function(problem) character())
      chosen <- known[sub("\\[.*", "", known) %in% sub("[.][0-9.]+$", "", elements)]
      if (length(chosen)) variables <- chosen
    }
    if (inherits(fit, "stanreg")) variables <- setdiff(known, c("mean_PPD", "log-posterior"))
  }
  chosen <- posterior::subset_draws(all_draws, variable = variables)
  ids <- as.data.frame(all_draws)[c(".chain", ".iteration")]
  cbind(ids, as.data.frame(chosen)[posterior::variables(chosen)])
}

# One draw of each chain in turn, because a thinner favours chains that it receives first.
.write_table <- function(table, file) {
  table <- table[order(table$.iteration, table$.chain), ]
  utils::write.csv(table, file, row.names = FALSE)
}

.at_kept_draws <- function(all_draws, kept) {
  ids <- function(table) paste(table$.chain, table$.iteration)
  rows <- match(ids(kept), ids(all_draws))
  if (anyNA(rows)) {
    stop("The draws in latent_dynamics are not those of the fit: its chains have other lengths.", call. = FALSE)
  }
  result <- all_draws[rows, ]
  source <- as.data.frame(result)[c(".chain", ".iteration")]
  result$.chain <- 1L
  result$.iteration <- seq_along(rows)
  result$.draw <- seq_along(rows)
  if (!is.null(kept$.log_weight)) result <- posterior::weight_draws(result, kept$.log_weight, log = TRUE)
  attr(result, "source") <- source
  result
}

.steinstream_command <- function() {
  command <- getOption("steinstream.command", "steinstream")
  if (!nzchar(Sys.which(command[1]))) {
    stop(
      "The program ", command[1], " was not found. Install it with pip install steinstream, or tell R where it is: ",
      "options(steinstream.command = \"/path/to/steinstream\").", call. = FALSE
    )
  }
  command
}

.as_text <- function(value) format(value, scientific = FALSE, trim = TRUE, digits = 15)

# Arguments as options: on_bad = "skip" is --on-bad skip, weights = TRUE is --weights.
.as_options <- function(arguments) {
  if (length(arguments) && (is.null(names(arguments)) || any(!nzchar(names(arguments))))) {
    stop("Options must be named, for example thin_draws(fit, size = 200, kernel = \"rbf\").", call. = FALSE)
  }
  unlist(Map(function(name, value) {
    option <- gsub("[._]", "-", name)
    if (isTRUE(value)) return(paste0("--", option))
    if (isFALSE(value)) return(paste0("--no-", option))
    c(paste0("--", option), if (is.character(value)) value else .as_text(value))
  }, names(arguments), arguments), use.names = FALSE)
}

.run_steinstream <- function(command, arguments) {
  words <- c(command[-1], arguments)
  lines <- suppressWarnings(system2(command[1], shQuote(words), stdout = TRUE, stderr = TRUE))
  if (!is.null(attr(lines, "status"))) stop(paste(lines, collapse = "\n"), call. = FALSE)
  is_warning <- startsWith(lines, "warning: ")
  for (line in lines[is_warning]) warning(sub("^warning: ", "", line), call. = FALSE)
  lines <- sub("  ·  wrote .*", "", lines[!is_warning])
  if (length(lines)) message(paste(lines, collapse = "\n"))
}
