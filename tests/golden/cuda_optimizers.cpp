/// \file
/// Optimizers of the GPU against Keras, by the kernels and what training does around them: the
/// machine of a test may have no library for a model's products.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "golden/optimizers.hpp"
#include "lockstep/cuda.hpp"
#include "lockstep/training/updates.hpp"
#include "support/run_kernel.hpp"
#include "support/test_gpu.hpp"

namespace ls = lockstep;

namespace {

/// The weights after each step, as Replica::update makes it.
template <class D, class O>
void meets_kernel(const std::string& name, const O& optimizer) {
  DYNAMIC_SECTION(name) {
    using T = typename D::real;
    const golden::GoldenFile file("optimizers");
    const auto w0 = testing::as<T>(file.values("w0"));
    const auto gradients = file.values("g"), expected = file.values(name);
    const std::size_t size = w0.size();
    testing::TestGpu gpu;
    auto context = D{}.open(1, 0);
    [[maybe_unused]] const auto scope = context.scope();
    testing::DeviceArray<D, T> w(context, w0), g(context, size);
    using Slot = ls::detail::Buffer<typename D::Context, T>;
    std::vector<Slot> slots;
    for (std::size_t i = 0; i < ls::detail::slot_count(optimizer); ++i) {
      slots.emplace_back(context, size);
      if constexpr (requires { optimizer.slot_start(i); })
        if (i < optimizer.slots())
          slots[i].upload(std::vector<T>(size, static_cast<T>(optimizer.slot_start(i))).data());
    }
    const ls::detail::UpdateSegment all{0, size, {}, true};
    ls::detail::Updates<D> updates(context, optimizer.with, optimizer.weight_decay, {&all, 1},
                                   slots.data() + optimizer.slots());
    for (std::uint64_t step = 1; step <= 12; ++step) {
      CAPTURE(step);
      g.upload(testing::as<T>(golden::row(gradients, step - 1, size)));
      if (updates.begin(step, w.data(), g.data())) {
        const double rate = optimizer.learning_rate(step - 1);
        const auto op = optimizer.op(rate, updates.number(step));
        ls::UpdateIo<D> io = updates.io(0, rate, w.data(), g.data());
        for (std::size_t i = 0; i < optimizer.slots(); ++i) io.slot[i] = slots[i].data();
        ls::Kernel<std::remove_cvref_t<decltype(op)>, D>::update(op, io);
      }
      updates.end(step, w.data());
      CHECK(testing::relative_error(w.download(), golden::row(expected, step - 1, size)) <
            golden::tolerance<D>);
    }
  }
}

}  // namespace

TEST_CASE("Cuda's optimizers move the weights as Keras' do", "[golden]") {
  golden::for_each_optimizer([](const std::string& name, const auto& optimizer) {
    meets_kernel<ls::Cuda>(name, optimizer);
  });
}
