// Predicts a number from a table: reads CSV with a column of words, holds out validation data and
// stops when the validation loss no longer improves. Run it with `./dev tabular_regression`.
//
// Expected output:
//   features: 4
//   stopped early: yes
//   validation error below 0.1: yes
//   predicted rent of 80 m2, 3 rooms, north: ...
#include <fmt/format.h>
#include <filesystem>
#include <fstream>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/data/sources/csv.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;

namespace {

/// Writes a table of flats: id, size in 100 m2, rooms, side of the river, rent in 1000 euros.
void write_table(const std::filesystem::path& path) {
  std::ofstream file(path);
  file << "id,size,rooms,side,rent\n";
  ls::Philox random(5);
  for (int id = 0; id < 600; ++id) {
    const double size = 0.3 + random.uniform(), rooms = 1 + static_cast<int>(4 * size);
    const bool north = random.uniform() < 0.5;
    const double rent = 0.2 + 1.1 * size + 0.05 * rooms + (north ? 0.3 * size : 0);
    file << fmt::format("{},{:.3f},{},{},{:.3f}\n", id, size, rooms, north ? "north" : "south",
                        rent + 0.03 * random.normal());
  }
}

struct Net : ls::Sequential<ls::Input<4>, ls::Dense<16, ls::relu>, ls::Dense<1>> {};

}  // namespace

int main() {
  const auto path = std::filesystem::temp_directory_path() / "lockstep_rents.csv";
  write_table(path);
  // The word of `side` becomes two features, one for each value that the column has.
  const auto table = ls::read_csv<float, float>(
      path.string(), {.target = "rent", .drop = {"id"}, .one_hot = {"side"}});
  std::filesystem::remove(path);
  const auto data = table | ls::cache | ls::shuffle(600) | ls::batch(30);

  ls::Model model{Net{},
                  ls::Seed{2},
                  ls::OneDevice<ls::Cpu>{.on = {.threads = 1}},
                  ls::MeanSquaredError{},
                  ls::Adam{.learning_rate = 0.01},
                  ls::RootMeanSquaredError{}};
  const ls::EarlyStopping early{
      .monitor = "val_loss", .min_delta = 1e-4, .patience = 5, .restore_best_weights = true};
  // The last fifth of the table is the validation data.
  const auto history =
      model.fit(data, ls::validation_split(0.2),
                {.epochs = 200, .callbacks = {early}, .progress = ls::ProgressStyle::none});

  const auto& errors = history["val_root_mean_squared_error"];
  fmt::print("features: {}\n", Net::input_shape.size());
  fmt::print("stopped early: {}\n", history.epoch.size() < 200 ? "yes" : "no");
  fmt::print("validation error below 0.1: {}\n", errors.back() < 0.1 ? "yes" : "no");
  const std::vector<float> flat{0.8f, 3, 1, 0};  // size, rooms, north, south
  const auto rents = model.predict(flat);
  fmt::print("predicted rent of 80 m2, 3 rooms, north: {:.2f}\n", rents.row(0)[0]);
}
