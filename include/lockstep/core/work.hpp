/// \file
/// What a device's context is computing: a layer of a model, or another part of a step. Invariant:
/// a Work costs a few stores; its name is put together only for an error or a profile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep {

/// The passes of a step, in their order.
enum class WorkPass : std::uint8_t {
  none,  ///< between steps
  data,
  forward,
  loss,
  backward,
  recompute,  ///< forward once more, for ls::Recompute
  exchange,
  update,
  evaluation,
};

LOCKSTEP_DECL const char* to_string(WorkPass pass);

/// The work that a context's next calls belong to.
struct Work {
  WorkPass pass = WorkPass::none;
  const char* part = "";                 ///< its name, if it is not a layer's: "loss", "optimizer"
  std::string (*layers)(int) = nullptr;  ///< else the names of layers by `index`
  int index = 0;
  std::uint64_t step = 0;  ///< from 0; of no meaning in an evaluation
  bool resumes = false;    ///< goes on after another one's
};

/// Whether both are the same part of a step, of whatever step.
inline bool is_same(const Work& a, const Work& b) {
  return a.pass == b.pass && a.layers == b.layers &&
         (a.layers != nullptr ? a.index == b.index : std::string_view(a.part) == b.part);
}

/// Is told when work begins, and so when the work before it ends.
class WorkListener {
 public:
  virtual void begin(const Work& work) = 0;
  virtual Work now() const = 0;  ///< what began last

 protected:
  ~WorkListener() = default;
};

/// "conv2d", "conv2d+re_lu" where one kernel does both, "optimizer".
LOCKSTEP_COLD_DECL std::string name_of(const Work& work);

/// For messages: " of layer 'conv2d' (forward, step 17)"; empty between steps.
LOCKSTEP_COLD_DECL std::string describe(const Work& work);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/work.ipp"
#endif
