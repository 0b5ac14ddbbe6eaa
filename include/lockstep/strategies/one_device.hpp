/// \file
/// A single replica in the calling thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "lockstep/collectives/self_group.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/strategies/virtual_shards.hpp"

namespace lockstep {

/// tf.distribute.OneDeviceStrategy: the whole batch on one device.
/// \code
///   ls::OneDevice<ls::Cpu>{}                                 // all cores
///   ls::OneDevice<ls::Cpu>{.on = {.threads = 1}}
///   ls::OneDevice<ls::Cpu>{.virtual_shards = 8}              // the bits of Mirrored with 8
/// \endcode
template <Device D>
struct OneDevice {
  using device = D;
  static constexpr std::string_view name = "one_device";

  D on{};                          ///< the device with its options
  std::size_t virtual_shards = 0;  ///< as in Mirrored

  /// The opened strategy: the device.
  class Session : public SessionOfOneReplica {
   public:
    explicit Session(const OneDevice& options) : state_(std::make_unique<State>(options)) {}
    /// Runs `body` in the calling thread.
    void each(FunctionRef<void(const ReplicaContext<D>&)> body) {
      [[maybe_unused]] const auto scope = state_->context.scope();
      body(ReplicaContext<D>{0, 0, CollectiveRef(state_->group),
                             GradientExchange<typename D::real>(state_->group), state_->context});
    }
    std::size_t virtual_shards() const { return state_->virtual_shards; }

   private:
    struct State {
      explicit State(const OneDevice& options)
          : virtual_shards(options.virtual_shards),
            context(
                (virtual_shards > 0 ? detail::of_one_thread(options.on) : options.on).open(1, 0)) {}
      std::size_t virtual_shards;
      typename D::Context context;
      SelfGroup group;
    };
    std::unique_ptr<State> state_;  // stable addresses when the session moves
  };

  /// Opens the device. \throws UsageError if the options are invalid, DeviceError if the device
  /// cannot be opened.
  Session open() const {
    detail::check_virtual_shards(virtual_shards, 1);
    return Session(*this);
  }
};

}  // namespace lockstep
