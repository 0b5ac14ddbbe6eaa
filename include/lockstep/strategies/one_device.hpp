/// \file
/// One replica in the caller's thread.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "lockstep/collectives/self_group.hpp"
#include "lockstep/concepts/strategy.hpp"

namespace lockstep {

/// tf.distribute.OneDeviceStrategy: the whole batch on one device.
/// \code
///   ls::OneDevice<ls::Cpu>{}                                 // all cores
///   ls::OneDevice<ls::Cpu>{.on = {.threads = 1}}
/// \endcode
template <Device D>
struct OneDevice {
  using device = D;
  static constexpr std::string_view name = "one_device";

  D on{};  ///< the device with its options

  class Session {
   public:
    explicit Session(const D& device) : state_(std::make_unique<State>(device)) {}
    /// Runs `body` in the calling thread.
    template <class Body>
    void each(Body&& body) {
      [[maybe_unused]] const auto scope = state_->context.scope();
      std::forward<Body>(body)(
          ReplicaContext<D>{0, 0, CollectiveRef(state_->group), state_->context});
    }
    std::size_t local_replicas() const { return 1; }
    std::size_t replicas() const { return 1; }
    std::size_t first_replica() const { return 0; }
    bool is_chief() const { return true; }

   private:
    struct State {
      explicit State(const D& device) : context(device.open(1, 0)) {}
      typename D::Context context;
      SelfGroup group;
    };
    std::unique_ptr<State> state_;  // addresses stay when the session moves
  };

  Session open() const { return Session(on); }
};

}  // namespace lockstep
