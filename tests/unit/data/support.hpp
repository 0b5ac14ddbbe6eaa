/// \file
/// Small data sets and straightforward traversals for the tests of the data folder.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace support {

/// Examples 0 .. n - 1, whose single feature and label equal their index.
inline auto range(int n) {
  std::vector<float> x(static_cast<std::size_t>(n));
  std::iota(x.begin(), x.end(), 0.0f);
  return lockstep::tensors(x, lockstep::shape(1), std::vector<std::int32_t>(x.begin(), x.end()));
}

/// The first `limit` indices of a pass.
template <class D>
std::vector<std::uint64_t> order_of(const D& data, lockstep::Pass pass = {},
                                    std::size_t limit = 1'000'000) {
  std::vector<std::uint64_t> order;
  auto stream = data.indices(pass);
  while (order.size() < limit) {
    const auto index = stream.next();
    if (!index) break;
    order.push_back(*index);
  }
  return order;
}

template <class T, class Y>
struct Gathered {
  std::vector<T> x;
  std::vector<Y> y;
  bool operator==(const Gathered&) const = default;
};

/// Gathers features and targets.
template <class T, class Y, class D>
void gather(const D& data, lockstep::Pass pass, const std::vector<lockstep::Item>& items,
            std::vector<T>& x, std::vector<Y>& y) {
  data.gather(pass, std::span<const lockstep::Item>(items),
              lockstep::RowsOf<D, T>(x.data(), y.data()));
}

/// A batch of features, targets and weights, by type.
template <class T, class Target = std::int32_t>
struct LabeledBatch {
  const T* x = nullptr;
  const Target* y = nullptr;
  const T* w = nullptr;
  lockstep::BatchSlice slice;
};
template <class T, class Target>
bool next(lockstep::Loader<T>& loader, LabeledBatch<T, Target>& out) {
  lockstep::LoadedBatch batch;
  if (!loader.next(batch)) return false;
  out = {batch.rows<T>(0), batch.rows<Target>(1), batch.rows<T>(2), batch.slice};
  return true;
}

/// The examples of a pass, in order.
template <class T, class D>
auto gather_all(const D& data, lockstep::Pass pass = {}) {
  std::vector<lockstep::Item> items;
  for (const std::uint64_t index : order_of(data, pass)) items.push_back({index, items.size()});
  Gathered<T, lockstep::target_of<D, T>> result;
  result.x.resize(items.size() * data.shape().size());
  result.y.resize(items.size() * data.shape(1).size());
  gather(data, pass, items, result.x, result.y);
  return result;
}

/// Checks that each subset of the fields has the values that all of them together have.
template <class T, class D>
void check_subsets(const D& data, lockstep::Pass pass) {
  using Target = lockstep::target_of<D, T>;
  std::vector<lockstep::Item> items;
  for (const std::uint64_t index : order_of(data, pass)) items.push_back({index, items.size()});
  const auto gathered = [&](bool wants_x, bool wants_y, bool wants_w) {
    std::vector<T> x(items.size() * data.shape().size(), T(-7)), w(items.size(), T(-7));
    std::vector<Target> y(items.size() * data.shape(1).size(), Target(-7));
    data.gather(pass, std::span<const lockstep::Item>(items),
                lockstep::RowsOf<D, T>(wants_x ? x.data() : nullptr, wants_y ? y.data() : nullptr,
                                       wants_w ? w.data() : nullptr));
    return std::tuple(x, y, w);
  };
  const auto all = gathered(true, true, true);
  const auto none = gathered(false, false, false);
  for (const bool x : {false, true})
    for (const bool y : {false, true})
      for (const bool w : {false, true}) {
        INFO("wants x " << x << ", y " << y << ", w " << w);
        const auto some = gathered(x, y, w);
        CHECK(std::get<0>(some) == std::get<0>(x ? all : none));
        CHECK(std::get<1>(some) == std::get<1>(y ? all : none));
        CHECK(std::get<2>(some) == std::get<2>(w ? all : none));
      }
}

/// Checks the contract of concepts/dataset.hpp for a finite data set: the order is a function of
/// (seed, pass), an example of (seed, pass, item), independent of the rest of the batch and of the
/// thread.
template <class D>
void check_dataset(const D& data) {
  for (const lockstep::Pass pass : {lockstep::Pass{1, 0}, lockstep::Pass{7, 3}}) {
    INFO("seed " << pass.seed << ", pass " << pass.number);
    const auto order = order_of(data, pass);
    CHECK(data.size() == order.size());
    CHECK(order == order_of(D(data), pass));
    auto stream = data.indices({5, 5});
    stream.next();
    lockstep::pipeline::restart(data, stream, pass);
    std::vector<std::uint64_t> again;
    while (const auto index = stream.next()) again.push_back(*index);
    CHECK(order == again);

    const auto all = gather_all<float>(data, pass);
    const std::size_t n = data.shape().size(), m = data.shape(1).size();
    std::vector<lockstep::Item> items;
    for (const std::uint64_t index : order) items.push_back({index, items.size()});
    const auto gather_reversed = [&] {  // three at a time, from the end
      using Target = lockstep::target_of<D>;
      Gathered<float, Target> result{std::vector<float>(all.x.size()), {}};
      result.y.assign(all.y.size(), Target(-1));
      for (std::size_t end = items.size(); end > 0;) {
        const std::size_t first = end - std::min<std::size_t>(end, 3);
        data.gather(
            pass, std::span<const lockstep::Item>(items).subspan(first, end - first),
            lockstep::RowsOf<D, float>(result.x.data() + first * n, result.y.data() + first * m));
        end = first;
      }
      return result;
    };
    std::vector<int> same(3);
    std::vector<std::thread> threads;
    for (int& found : same) threads.emplace_back([&] { found = gather_reversed() == all; });
    for (std::thread& thread : threads) thread.join();
    CHECK(same == std::vector<int>(3, 1));

    check_subsets<float>(data, pass);
    check_subsets<double>(data, pass);

    const auto wide = gather_all<double>(data, pass);
    const auto near = [](double a, double b) {
      return std::abs(a - b) <= 1e-5 * (1 + std::abs(b));
    };
    CHECK(std::equal(all.x.begin(), all.x.end(), wide.x.begin(), wide.x.end(), near));
    CHECK(std::equal(all.y.begin(), all.y.end(), wide.y.begin(), wide.y.end(), near));
  }
}

/// A source that is not in memory and counts gathered examples.
struct Counted {
  using fields = lockstep::Labeled<std::int32_t>;
  std::uint64_t count = 10;
  std::size_t* gathered = nullptr;

  lockstep::Shape shape(std::size_t field = 0) const {
    return field == 0 ? lockstep::shape(1) : lockstep::Shape{};
  }
  std::optional<std::uint64_t> size() const { return count; }
  lockstep::pipeline::Counter indices(lockstep::Pass) const {
    return lockstep::pipeline::Counter(count);
  }
  template <class T>
  void gather(lockstep::Pass, std::span<const lockstep::Item> items,
              lockstep::Rows<T, fields> to) const {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (to.x() != nullptr) to.x()[i] = static_cast<T>(items[i].index);
      if (to.y() != nullptr) to.y()[i] = static_cast<std::int32_t>(items[i].index);
    }
    if (gathered) *gathered += items.size();
  }
};

/// A temporary folder, removed at the end of the test.
class Folder {
 public:
  Folder() {
    std::random_device draw;
    path_ = std::filesystem::temp_directory_path() /
            ("lockstep_data_" + std::to_string(draw()) + std::to_string(draw()));
    std::filesystem::create_directory(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }

 private:
  std::filesystem::path path_;
};

/// The contents of an IDX file of unsigned bytes.
inline std::string idx(const std::vector<std::uint32_t>& extents, std::string_view bytes) {
  std::string file{0, 0, 8, static_cast<char>(extents.size())};
  for (const std::uint32_t extent : extents)
    for (const int shift : {24, 16, 8, 0}) file += static_cast<char>(extent >> shift & 0xff);
  return file.append(bytes);
}

/// A gzip member, compressed by zlib.
inline std::string gzip(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, static_cast<uLong>(bytes.size())) + 64, '\0');
  std::string in = bytes;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace support
