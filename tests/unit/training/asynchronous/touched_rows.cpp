/// The weights that a batch touches, against a count of each element.
#include "lockstep/training/asynchronous/touched_rows.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <random>
#include <set>
#include <vector>

#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/embedding.hpp"
#include "lockstep/lockstep.hpp"

using namespace lockstep;
using namespace lockstep::detail;

namespace {

struct Mean : Sequential<GlobalAveragePooling1D> {};
/// Two tables, and one whose penalty touches all rows.
struct Words : Sequential<Input<3>,
                          Parallel<Concatenate, Sequential<Embedding<10, 4>, Mean>,
                                   Sequential<Embedding<6, 2>, Mean>,
                                   Sequential<Embedding<5, 2, kernel_regularizer(L2{0.1})>, Mean>>,
                          Dense<2>> {};

}  // namespace

TEST_CASE("the tables of a network are those that its input chooses rows of") {
  constexpr auto tables = row_tables<Words>();
  REQUIRE(tables.count == 2);
  CHECK(tables.table[0].first == 0);
  CHECK(tables.table[0].rows == 10);
  CHECK(tables.table[0].width == 4);
  CHECK(tables.table[1].first == 40);
  CHECK(tables.table[1].width == 2);
}

TEST_CASE("a batch touches its rows and all weights outside of tables") {
  std::mt19937 draw(5);
  for (int round = 0; round < 100; ++round) {
    const std::vector<RowTable> tables{{3, 10, 4}, {43, 6, 2}, {60, 1, 5}};
    const std::size_t weights = 65 + draw() % 4;
    std::vector<std::size_t> rows(draw() % 12);
    for (std::size_t& row : rows) row = draw() % 12;
    std::set<std::size_t> expected;
    for (std::size_t i = 0; i < weights; ++i) {
      const RowTable* of = nullptr;
      for (const RowTable& table : tables)
        if (i >= table.first && i < table.first + table.rows * table.width) of = &table;
      const auto reads = [&] {
        for (const std::size_t row : rows)
          if (row == (i - of->first) / of->width) return true;
        return false;
      };
      if (of == nullptr || reads()) expected.insert(i);
    }
    std::vector<Slice> touched, parts;
    touched_weights(tables, weights, rows, touched);
    std::set<std::size_t> found;
    std::size_t end = 0;
    for (const Slice& slice : touched) {
      CHECK((found.empty() || slice.first > end));  // as long as possible
      end = slice.first + slice.count;
      for (std::size_t i = slice.first; i < end; ++i) found.insert(i);
    }
    CHECK(found == expected);

    const std::size_t first = draw() % weights, count = draw() % (weights - first + 1);
    const Slice range{first, count};
    touched_within(touched, {&range, 1}, parts);
    std::set<std::size_t> within, both;
    for (const Slice& part : parts)
      for (std::size_t i = 0; i < part.count; ++i) within.insert(part.first + i);
    for (const std::size_t i : expected)
      if (range.contains(i)) both.insert(i);
    CHECK(within == both);
    CHECK_FALSE(parts.empty());
  }
}
