/// \file
/// Layers that move elements, checked against their indices, in double.
#include "lockstep/layers/reshaping/rearrangement.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <functional>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace ls = lockstep;

namespace {

using Double = ls::Reference<double>;
constexpr std::size_t count = 2;

/// Calls visit(example, index) for each element of `s`, in order of memory.
void for_each_index(ls::Shape s, const std::function<void(int, ls::Shape)>& visit) {
  for (int n = 0; n < static_cast<int>(count); ++n)
    for (int a = 0; a < s[0]; ++a)
      for (int b = 0; b < s[1]; ++b)
        for (int c = 0; c < s[2]; ++c)
          for (int d = 0; d < s[3]; ++d) visit(n, {s.rank, {a, b, c, d, 1}});
}
std::size_t offset(ls::Shape s, int n, ls::Shape at) {
  int result = n;
  for (int axis = 0; axis < 4; ++axis) result = result * s[axis] + at[axis];
  return static_cast<std::size_t>(result);
}

/// Whether y of L is x at the index that `source` returns for an index of y, and 0 where it is
/// outside of x, and dx the sum of dy over the elements of y with this source.
template <class L>
bool moves(ls::Shape in, ls::Shape out, const std::function<ls::Shape(ls::Shape)>& source) {
  const auto op = L::op(in);
  if (!(op.out() == out)) return false;
  const auto x = testing::normal_values(count * in.size(), 1);
  const auto dy = testing::normal_values(count * out.size(), 2);
  std::vector<double> y, dx(x.size(), 0);
  for_each_index(out, [&](int n, ls::Shape at) {
    const ls::Shape from = source(at);
    bool inside = true;
    for (int axis = 0; axis < 4; ++axis)
      inside = inside && from[axis] >= 0 && from[axis] < in[axis];
    if (inside) dx[offset(in, n, from)] += dy[y.size()];
    y.push_back(inside ? x[offset(in, n, from)] : 0);
  });
  const auto run = testing::run_layer<Double>(op, count, x, {}, dy);
  return run.y == y && run.dx == dx;
}

ls::Shape place(int a, int b = 0, int c = 0, int d = 0) { return {4, {a, b, c, d}}; }

/// A user-defined op: every second element of a vector.
struct EverySecondOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return ls::shape(in[0] / 2); }
  constexpr ls::Rearrangement rearrangement() const {
    return ls::Rearrangement::of({{in[0] / 2, in[0] / 2, 0, 2}, {1, 2, 0, 1}});
  }
  bool operator==(const EverySecondOp&) const = default;
};
struct EverySecond : ls::ParameterlessLayer<EverySecondOp> {};

/// The index `by` further along an axis.
auto moved(int axis, int by) {
  return [=](ls::Shape at) {
    at.extent[static_cast<std::size_t>(axis)] += by;
    return at;
  };
}

}  // namespace

TEST_CASE("SliceAxis is a range of any axis") {
  CHECK(moves<ls::SliceAxis<1, 2, 5>>(ls::shape(7), ls::shape(3), moved(0, 2)));
  CHECK(moves<ls::SliceAxis<1, 0, 1>>(ls::shape(1), ls::shape(1), moved(0, 0)));
  CHECK(moves<ls::SliceAxis<1, 1>>(ls::shape(4, 3), ls::shape(3, 3), moved(0, 1)));
  CHECK(moves<ls::SliceAxis<2, 1, 3>>(ls::shape(4, 3), ls::shape(4, 2), moved(1, 1)));
  CHECK(moves<ls::SliceAxis<2, 3, 4>>(ls::shape(3, 5, 2), ls::shape(3, 1, 2), moved(1, 3)));
  CHECK(moves<ls::SliceAxis<-1, 0, -2>>(ls::shape(3, 2, 5), ls::shape(3, 2, 3), moved(2, 0)));
  CHECK(moves<ls::SliceAxis<1, -1>>(ls::shape(3, 2, 5), ls::shape(1, 2, 5), moved(0, 2)));
  CHECK(moves<ls::SliceAxis<3, 1, 3>>(ls::shape(2, 3, 4, 2), ls::shape(2, 3, 2, 2), moved(2, 1)));
  CHECK(moves<ls::SliceAxis<-1, 1>>(ls::shape(2, 3, 4, 2), ls::shape(2, 3, 4, 1), moved(3, 1)));
}

TEST_CASE("Cropping2D and ZeroPadding2D move an image") {
  const auto by = [](int rows, int columns) {
    return [=](ls::Shape at) { return moved(0, rows)(moved(1, columns)(at)); };
  };
  CHECK(moves<ls::Cropping2D<>>(ls::shape(3, 2, 2), ls::shape(3, 2, 2), by(0, 0)));
  CHECK(moves<ls::Cropping2D<ls::edges(1, 2, 0, 3)>>(ls::shape(5, 7, 3), ls::shape(2, 4, 3),
                                                     by(1, 0)));
  CHECK(moves<ls::Cropping2D<ls::edges(0, 1, 2, 0)>>(ls::shape(2, 3, 1), ls::shape(1, 1, 1),
                                                     by(0, 2)));
  CHECK(moves<ls::ZeroPadding2D<ls::edges(1, 2, 0, 3)>>(ls::shape(2, 3, 2), ls::shape(5, 6, 2),
                                                        by(-1, 0)));
  CHECK(moves<ls::ZeroPadding2D<ls::edges(0, 1, 2, 0)>>(ls::shape(1, 1, 1), ls::shape(2, 3, 1),
                                                        by(0, -2)));
}

TEST_CASE("Cropping1D and ZeroPadding1D move steps") {
  CHECK(moves<ls::Cropping1D<>>(ls::shape(4, 3), ls::shape(2, 3), moved(0, 1)));
  CHECK(moves<ls::Cropping1D<0, 2>>(ls::shape(3, 1), ls::shape(1, 1), moved(0, 0)));
  CHECK(moves<ls::ZeroPadding1D<>>(ls::shape(4, 3), ls::shape(6, 3), moved(0, -1)));
  CHECK(moves<ls::ZeroPadding1D<2, 0>>(ls::shape(1, 1), ls::shape(3, 1), moved(0, -2)));
}

TEST_CASE("Permute orders axes") {
  CHECK(moves<ls::Permute<1>>(ls::shape(5), ls::shape(5), moved(0, 0)));
  CHECK(moves<ls::Permute<2, 1>>(ls::shape(4, 3), ls::shape(3, 4),
                                 [](ls::Shape at) { return place(at[1], at[0]); }));
  CHECK(moves<ls::Permute<2, 1>>(ls::shape(1, 3), ls::shape(3, 1),
                                 [](ls::Shape at) { return place(at[1], at[0]); }));
  CHECK(moves<ls::Permute<3, 1, 2>>(ls::shape(4, 3, 2), ls::shape(2, 4, 3),
                                    [](ls::Shape at) { return place(at[1], at[2], at[0]); }));
  CHECK(moves<ls::Permute<1, 2, 3>>(ls::shape(4, 3, 2), ls::shape(4, 3, 2), moved(0, 0)));
  CHECK(moves<ls::Permute<4, 2, 1, 3>>(
      ls::shape(2, 3, 4, 5), ls::shape(5, 3, 2, 4),
      [](ls::Shape at) { return place(at[2], at[1], at[3], at[0]); }));
}

TEST_CASE("RepeatVector repeats a vector, and UpSampling1D each step") {
  const auto vector = [](ls::Shape at) { return place(at[1]); };
  CHECK(moves<ls::RepeatVector<3>>(ls::shape(5), ls::shape(3, 5), vector));
  CHECK(moves<ls::RepeatVector<1>>(ls::shape(5), ls::shape(1, 5), vector));
  CHECK(moves<ls::RepeatVector<4>>(ls::shape(1), ls::shape(4, 1), vector));
  CHECK(moves<ls::RepeatVector<2>>(ls::shape(130), ls::shape(2, 130), vector));
  CHECK(moves<ls::UpSampling1D<>>(ls::shape(4, 3), ls::shape(8, 3),
                                  [](ls::Shape at) { return place(at[0] / 2, at[1]); }));
  CHECK(moves<ls::UpSampling1D<3>>(ls::shape(1, 1), ls::shape(3, 1),
                                   [](ls::Shape at) { return place(at[0] / 3, at[1]); }));
}

TEST_CASE("DepthToSpace and SpaceToDepth order channels as (row, column, channel)") {
  const auto deep = [](int block, int channels) {
    return [=](ls::Shape at) {
      return place(at[0] / block, at[1] / block,
                   (at[0] % block * block + at[1] % block) * channels + at[2]);
    };
  };
  const auto wide = [](int block, int channels) {
    return [=](ls::Shape at) {
      const int pixel = at[2] / channels;
      return place(at[0] * block + pixel / block, at[1] * block + pixel % block, at[2] % channels);
    };
  };
  CHECK(moves<ls::DepthToSpace<2>>(ls::shape(2, 3, 12), ls::shape(4, 6, 3), deep(2, 3)));
  CHECK(moves<ls::DepthToSpace<3>>(ls::shape(1, 2, 9), ls::shape(3, 6, 1), deep(3, 1)));
  CHECK(moves<ls::DepthToSpace<1>>(ls::shape(2, 3, 5), ls::shape(2, 3, 5), deep(1, 5)));
  CHECK(moves<ls::SpaceToDepth<2>>(ls::shape(4, 6, 3), ls::shape(2, 3, 12), wide(2, 3)));
  CHECK(moves<ls::SpaceToDepth<3>>(ls::shape(3, 6, 1), ls::shape(1, 2, 9), wide(3, 1)));
  CHECK(moves<ls::SpaceToDepth<2>>(ls::shape(2, 2, 1), ls::shape(1, 1, 4), wide(2, 1)));
}

TEST_CASE("a user-defined op that moves elements needs no kernel") {
  CHECK(moves<EverySecond>(ls::shape(6), ls::shape(3),
                           [](ls::Shape at) { return place(2 * at[0]); }));
}

TEST_CASE("a rearrangement has as few axes as possible") {
  const auto axes = [](const ls::Rearrangement& map) {
    int n = 0;
    for (const ls::RearrangedAxis& a : map.axis) n += a.extent > 1 || a.from > 1;
    return n;
  };
  CHECK(axes(ls::ZeroPadding2D<1>::op(ls::shape(4, 5, 3)).rearrangement()) == 2);
  CHECK(axes(ls::SliceAxis<2, 1, 3>::op(ls::shape(4, 5, 3)).rearrangement()) == 2);
  CHECK(axes(ls::SliceAxis<1, 1, 3>::op(ls::shape(4, 5, 3)).rearrangement()) == 1);
  CHECK(axes(ls::Cropping2D<0>::op(ls::shape(4, 5, 3)).rearrangement()) == 1);
}
