/// \file
/// benchmarks/gpu_figures.hpp: a measured figure is in the file, whatever happens later.
#include "../../../../benchmarks/gpu_figures.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "lockstep/core/error.hpp"

namespace {

/// A temporary folder.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("gpu_figures." + std::to_string(getpid()));
  Folder() { std::filesystem::create_directory(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

std::string text(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("GPU figures are written one by one") {
  const Folder folder;
  const auto path = folder.path / "f.json";
  gpu_figures::Report report("A \"GPU\"", path);
  report.add({"launch", "one", "us", 1.5});
  CHECK(text(path) ==
        "{\"gpu\": \"A \\\"GPU\\\"\",\n \"figures\": [\n"
        "  {\"group\": \"launch\", \"name\": \"one\", \"unit\": \"us\", \"value\": 1.5}\n]}\n");
  std::ifstream before(path);
  report.add({"launch", "two", "us", 0, "no call"});
  CHECK(text(path) ==
        "{\"gpu\": \"A \\\"GPU\\\"\",\n \"figures\": [\n"
        "  {\"group\": \"launch\", \"name\": \"one\", \"unit\": \"us\", \"value\": 1.5},\n"
        "  {\"group\": \"launch\", \"name\": \"two\", \"unit\": \"us\", \"value\": null, "
        "\"reason\": \"no call\"}\n]}\n");
  // An open reader sees the old content: the file is replaced, not overwritten.
  const std::string old{std::istreambuf_iterator<char>(before), {}};
  CHECK(old.find("one") != old.npos);
  CHECK(old.find("two") == old.npos);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("a GPU that fails ends a group of figures, not the report") {
  const Folder folder;
  const auto path = folder.path / "f.json";
  gpu_figures::Report report("A GPU", path);
  report.group("launch", [&] {
    report.add({"launch", "one", "us", 1});
    throw lockstep::DeviceError("cuda: lost");
  });
  report.group("host", [&] { report.add({"host", "two", "us", 2}); });
  report.group("barrier", [] { throw lockstep::DeviceError("cuda: lost, too"); });
  REQUIRE(report.figures().size() == 4);
  CHECK(report.figures()[1].name == "the rest");
  CHECK(report.figures()[1].reason == "cuda: lost");
  CHECK(report.figures()[2].value == 2);
  CHECK(report.failure() == "launch: cuda: lost");
  CHECK(text(path).find("cuda: lost, too") != std::string::npos);
}

TEST_CASE("figures that cannot be written are an error") {
  gpu_figures::Report report("A GPU", "/nowhere/f.json");
  CHECK_THROWS_AS(report.add({"launch", "one", "us", 1}), lockstep::FileError);
}
