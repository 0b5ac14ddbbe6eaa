/// \file
/// Labels for the work of a device's context: a layer of a model, or another part of a step.
/// Invariant: setting a label costs a few stores; its name is formatted only for an error or a
/// profile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/format_text.hpp"

namespace lockstep {

/// The passes of a step, in order.
enum class WorkPass : std::uint8_t {
  none,  ///< between steps
  data,
  forward,
  loss,
  backward,
  recompute,  ///< forward for a second time, for ls::Recompute
  exchange,
  update,
  evaluation,
};

inline const char* to_string(WorkPass pass) {
  constexpr std::array names{"none",      "data",     "forward", "loss",      "backward",
                             "recompute", "exchange", "update",  "evaluation"};
  return names[static_cast<std::size_t>(pass)];
}

/// Label of the calls that a context makes next.
struct Work {
  WorkPass pass = WorkPass::none;
  const char* part = "";                 ///< name of work that is not a layer's: "loss",
                                         ///< "optimizer"
  std::string (*layers)(int) = nullptr;  ///< or: function from `index` to the names of layers
  int index = 0;
  std::uint64_t step = 0;  ///< counted from 0; unused in evaluation
  bool resumes = false;    ///< continues earlier work after an interruption
};

/// Whether both label the same part of a step, regardless of its number.
inline bool is_same(const Work& a, const Work& b) {
  return a.pass == b.pass && a.layers == b.layers &&
         (a.layers != nullptr ? a.index == b.index : std::string_view(a.part) == b.part);
}

/// Notified when work begins, which also ends the previous work.
class WorkListener {
 public:
  virtual void begin(const Work& work) = 0;
  virtual Work now() const = 0;  ///< the work that began last

 protected:
  ~WorkListener() = default;
};

/// Name of the work: "conv2d", "conv2d+re_lu" for a fused kernel, "optimizer".
[[gnu::cold]] inline std::string name_of(const Work& work) {
  return work.layers == nullptr ? work.part : work.layers(work.index);
}

/// Suffix for messages: " of layer 'conv2d' (forward, step 17)"; empty between steps.
[[gnu::cold]] inline std::string describe(const Work& work) {
  if (work.pass == WorkPass::none) return "";
  const bool is_layer = work.layers != nullptr;
  std::string result = format_text("{}{}{} ({}", is_layer ? " of layer '" : " of the ",
                                   name_of(work), is_layer ? "'" : "", to_string(work.pass));
  if (work.pass != WorkPass::evaluation) result += format_text(", step {}", work.step);
  return result + ")";
}

}  // namespace lockstep
