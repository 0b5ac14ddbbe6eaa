/// \file
/// Writes the course of a training for TensorBoard. Invariants: only the chief writes; when an
/// epoch has ended, all of its values are in the files; an error of the disk does not end the
/// training.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/tensorboard/hparam.hpp"
#include "lockstep/tensorboard/update_freq.hpp"

namespace lockstep {

/// Keras' TensorBoard, with its defaults, runs and tags.
///
///     LOG_DIR                 the hyperparameters, if there are any
///     LOG_DIR/train           epoch_loss, epoch_METRIC, epoch_learning_rate; the x axis is the
///                             epoch, counted from 0
///                             batch_loss, batch_METRIC: means over the epoch so far; the x axis
///                             is the number of steps that the model has made
///                             LAYER/WEIGHT/histogram, the graph, images
///     LOG_DIR/validation      epoch_loss, epoch_METRIC; evaluation_METRIC_vs_iterations, also
///                             for `evaluate`
///
/// In addition to Keras' histograms of weights there are LAYER/WEIGHT/gradient/histogram, the
/// gradient of the epoch's last step, and LAYER/WEIGHT/update/histogram, the change of the weight
/// since the last histogram, or since the beginning of `fit`. Each `fit` and each `evaluate` writes
/// new files, which TensorBoard joins with earlier ones: a resumed training goes on in the same
/// charts. Values are in the file after each epoch and each evaluation, and within an epoch after
/// ten events, or at the first event that is 120 s later.
/// Source: keras/src/callbacks/tensorboard.py.
/// \code
///   model.fit(train, test, {.epochs = 3, .callbacks = {ls::TensorBoard{
///       .log_dir = "logs/adam", .histogram_freq = 1, .update_freq = "batch",
///       .hparams = {{"optimizer", "adam"}, {"learning_rate", 1e-3}}}}});
///   // tensorboard --logdir logs
/// \endcode
struct TensorBoard {
  std::string log_dir = "logs";  ///< relative to the working directory; created if needed
  int histogram_freq = 0;        ///< epochs between histograms; 0: none
  bool write_graph = true;       ///< the layers, each in a box with its parameters
  bool write_images = false;     ///< weights as images, as often as histograms
  /// epoch_steps_per_second, which includes validation, and batch_steps_per_second.
  bool write_steps_per_second = false;
  UpdateFreq update_freq = "epoch";  ///< when to write values of batches
  std::vector<HParam> hparams{};     ///< a session in the tab "HPARAMS"

  /// The callback for `fit` and `evaluate`. \throws UsageError if an option is invalid. `fit`
  /// throws FileError if the files cannot be created; later errors are logged once for each file.
  LOCKSTEP_COLD_DECL operator std::shared_ptr<Callback>() const;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/tensorboard/tensorboard_callback.ipp"
#endif
