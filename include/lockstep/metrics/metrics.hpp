/// \file
/// All metrics.
#pragma once

#include "lockstep/metrics/accuracy.hpp"
#include "lockstep/metrics/auc.hpp"
#include "lockstep/metrics/binary_accuracy.hpp"
#include "lockstep/metrics/confusion_matrix.hpp"
#include "lockstep/metrics/mean_cosine_similarity.hpp"
#include "lockstep/metrics/mean_of.hpp"
#include "lockstep/metrics/precision.hpp"
#include "lockstep/metrics/recall.hpp"
#include "lockstep/metrics/root_mean_squared_error.hpp"
#include "lockstep/metrics/top_k_categorical_accuracy.hpp"
#include "lockstep/metrics/weighted.hpp"
