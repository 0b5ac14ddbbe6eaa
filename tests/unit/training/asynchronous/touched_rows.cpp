/// The weights that a batch touches, against a count of each element.
#include "lockstep/training/asynchronous/touched_rows.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/embedding.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/training/asynchronous/distant_tables.hpp"

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

TEST_CASE("the rows of a batch lie one after the other in a process that has no others") {
  std::mt19937 draw(6);
  for (int round = 0; round < 100; ++round) {
    const std::vector<RowTable> tables{{3, 10, 4}, {43, 8, 2}};
    constexpr std::size_t weights = 65;
    std::vector<float> model(weights), here(weights, -1), back(weights, -2);
    for (std::size_t i = 0; i < weights; ++i) model[i] = static_cast<float>(i);
    std::vector<float> x(draw() % 9), places;
    for (float& v : x) v = static_cast<float>(draw() % 12);
    x.insert(x.end(), {2.5f, -1.0f});  // left to the layer to refuse, as 8 and more
    PlacedRows rows;
    collect_rows<float>(x, rows.rows);
    rows.place(tables, weights, sizeof(float), true);
    renumber<float>(x, rows.rows, places);

    const std::vector<Slice> ranges{{0, 80}, {80, 60}, {140, 120}};  // bytes, of three servers
    for (const Slice& range : ranges) {
      std::vector<Slice> parts, to;
      touched_within(rows, {&range, 1}, parts, to);
      REQUIRE(parts.size() == to.size());
      for (std::size_t i = 0; i < parts.size(); ++i)
        for (std::size_t k = 0; k < parts[i].count / sizeof(float); ++k) {
          here[to[i].first / sizeof(float) + k] = model[parts[i].first / sizeof(float) + k];
          back[parts[i].first / sizeof(float) + k] = here[to[i].first / sizeof(float) + k];
        }
    }
    for (std::size_t i = 0; i < weights; ++i)
      if (i < 3 || i >= 59) CHECK((here[i] == model[i] && back[i] == model[i]));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool is_row = x[i] >= 0 && x[i] < 8 && x[i] != 2.5f;
      if (!is_row) {
        CHECK(places[i] == x[i]);
        continue;
      }
      for (const RowTable& table : tables)
        for (std::size_t k = 0; k < table.width; ++k)
          CHECK(here[table.first + static_cast<std::size_t>(places[i]) * table.width + k] ==
                model[table.first + static_cast<std::size_t>(x[i]) * table.width + k]);
    }
    std::set<std::size_t> used;
    for (const Slice& part : rows.used)
      for (std::size_t i = 0; i < part.count; ++i) used.insert(part.first + i);
    for (std::size_t i = 0; i < weights; ++i) CHECK(used.contains(i) == (here[i] != -1));
  }
}

TEST_CASE("parts of a row choose rows, tables with several uses are exchanged as a whole") {
  using N = Let<"n", From<"numbers">, Dense<2>>;
  struct Parts : lockstep::Graph<In<"numbers", 2>, In<"words", Integers<3>>, N,
                                 Let<"w", From<"words">, Embedding<5, 2>, GlobalAveragePooling1D>,
                                 Out<"y", From<"n", "w">, Add>> {};
  struct Twice : Sequential<Input<3>, Parallel<Add, Shared<"table", Embedding<5, 2>>,
                                               Shared<"table", Embedding<5, 2>>>> {};
  struct Tied : Sequential<Input<3>, Shared<"table", Embedding<5, 2>>, TiedDense<"table">> {};
  struct Plain
      : lockstep::Graph<In<"a", Integers<3>>, In<"b", Integers<3>>,
                        Let<"x", From<"a">, Embedding<5, 2>>, Let<"y", From<"b">, Embedding<4, 2>>,
                        Out<"sum", From<"x", "y">, Add>> {};
  constexpr auto parts = row_tables<Parts>();
  REQUIRE(parts.count == 1);
  CHECK(parts.table[0].first == 2 * 2 + 2);
  CHECK(row_tables<Plain>().count == 2);
  CHECK(row_tables<Twice>().count == 0);
  CHECK(row_tables<Tied>().count == 0);
  CHECK(!reads_by_tables<Parts>());  // Dense reads the input, too
  CHECK(reads_by_tables<Plain>());
  CHECK(!reads_by_tables<Twice>());
  CHECK(!reads_by_tables<Tied>());
}

TEST_CASE("initial values that are drawn in blocks are those of one call") {
  const auto check = [](const NamedParameter& p) {
    std::vector<double> whole(p.shape.size()), blocks(p.shape.size());
    Philox generator = generator_of(p, 4);
    p.initializer(generator, p.shape, p.fans, whole);
    std::size_t calls = 0;
    draw_in_blocks(p, 4, p.shape.size() - 7,
                   [&](std::span<const double> values, std::size_t first) {
                     ++calls;
                     std::copy(values.begin(), values.end(),
                               blocks.begin() + static_cast<std::ptrdiff_t>(first));
                   });
    CHECK(blocks == whole);
    return calls;
  };
  NamedParameter p{};
  p.name = "embeddings";
  p.layer = "embedding";
  p.shape = shape(50'000, 3);
  p.fans = {50'000, 3};
  p.initializer = &initialize<RandomUniform{}>;
  CHECK(check(p) == 3);
  p.initializer = &initialize<TruncatedNormal{}>;
  CHECK(check(p) == 3);
  p.initializer = &initialize<Orthogonal{}>;  // needs all elements
  CHECK(check(p) == 1);
}
