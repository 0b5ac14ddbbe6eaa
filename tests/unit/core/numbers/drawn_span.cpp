#include "lockstep/core/numbers/drawn_span.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <vector>

using lockstep::drawn_span;
using lockstep::Philox;

TEST_CASE("a drawn span is centred at the drawn pixel and clipped to the image") {
  for (const int size : {1, 2, 3, 8, 20})
    for (const int extent : {1, 5, 16}) {
      std::vector<int> seen(static_cast<std::size_t>(extent));
      for (std::uint64_t stream = 0; stream < 400; ++stream) {
        Philox draws(7, stream), again(7, stream);
        const auto span = drawn_span(size, extent, draws);
        const auto middle = static_cast<int>(again.below(static_cast<std::uint32_t>(extent)));
        REQUIRE(draws.below(1000) == again.below(1000));  // one draw
        ++seen[static_cast<std::size_t>(middle)];
        for (int pixel = 0; pixel < extent; ++pixel) {
          const int from_start = pixel - (middle - size / 2);
          const auto p = static_cast<std::size_t>(pixel);
          REQUIRE((p >= span.begin && p < span.end) == (from_start >= 0 && from_start < size));
        }
      }
      CHECK(*std::ranges::min_element(seen) > 0);
    }
}
