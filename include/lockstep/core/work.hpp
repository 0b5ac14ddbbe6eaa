/// \file
/// Labels for the work of a device's context: a layer of a model, or another part of a step.
/// Invariant: setting a label costs a few stores; its name is formatted only for an error or a
/// profile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"

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

LOCKSTEP_DECL const char* to_string(WorkPass pass);

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
LOCKSTEP_COLD_DECL std::string name_of(const Work& work);

/// Suffix for messages: " of layer 'conv2d' (forward, step 17)"; empty between steps.
LOCKSTEP_COLD_DECL std::string describe(const Work& work);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/work.ipp"
#endif
