// A lower bound for the steps of the tutorials' CNN and of ResNet-56 on an H200, computed from the
// plan, part by part, without a GPU. Nothing is measured.
//
// A part takes the time of its bytes at the memory's bandwidth or of its FLOPs at the arithmetic's
// throughput, whichever is longer, and at least the floor of a kernel in a graph; each further
// launch of the part adds the floor. Precisions differ in what the tensor cores do: TF32 and
// bfloat16 make products faster, and bfloat16 also reduces the bytes. float16 is as fast as
// bfloat16, with other launches. Transfers over PCIe and hits in the L2 cache (50 MB) are left
// out.
//
// Exit code 1 if the parts' FLOPs, plus those that they skip, differ from those of the model's
// graph.
#include <fmt/format.h>
#include <cmath>
#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>

#include <lockstep/cuda.hpp>
#include <lockstep/lockstep.hpp>

#include "gpu_work.hpp"
#include "resnet.hpp"

namespace {

namespace ls = lockstep;
using gpu_work::Part;
using Parts = std::vector<Part>;

struct Cnn : ls::Sequential<ls::Input<28, 28, 1>,             //
                            ls::Conv2D<32, 3>, ls::ReLU,      //
                            ls::MaxPooling2D<>, ls::Flatten,  //
                            ls::Dense<64>, ls::ReLU,          //
                            ls::Dense<10>> {};

/// An H200, dense, from its data sheet.
struct Gpu {
  double terabytes = 4.8;                           ///< per second
  double float32 = 67, tf32 = 494, bfloat16 = 989;  ///< TFLOP/s
  double floor = 1.5;                               ///< us, a launch in a graph: assumed
};

/// The bound of one part, without the floor.
double roof(const Part& p, const Gpu& gpu, double teraflops) {
  return std::fmax(p.bytes / gpu.terabytes, p.flops / (p.in_float ? gpu.float32 : teraflops)) / 1e6;
}
double time_of(const Part& p, const Gpu& gpu, double teraflops) {
  return std::fmax(roof(p, gpu, teraflops), gpu.floor) + (p.launches - 1) * gpu.floor;
}

struct Total {
  double bytes = 0, flops = 0, roof = 0, time = 0;
  int launches = 0;
};
Total total(const Parts& parts, const Gpu& gpu, double teraflops) {
  Total t;
  for (const Part& p : parts) {
    t.bytes += p.times * p.bytes;
    t.flops += p.times * p.flops;
    t.roof += p.times * roof(p, gpu, teraflops);
    t.time += p.times * time_of(p, gpu, teraflops);
    t.launches += p.times * p.launches;
  }
  return t;
}

const Part* find(const Parts& parts, const Part& like) {
  for (const Part& p : parts)
    if (p.op == like.op && p.pass == like.pass && p.flops == like.flops) return &p;
  return nullptr;
}

/// One line per part, in plan order; parts of `wide` appear if `half` has them.
void print_parts(const Parts& wide, const Parts& half, const Gpu& gpu) {
  fmt::print(
      "| op | pass | times | launches, float32 and bfloat16 | MB, float32 | MB, bfloat16 | MFLOP | "
      "bound, us, float32 | bound, us, tf32 | bound, us, bfloat16 "
      "|\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n");
  for (const Part& h : half) {
    const Part* const w = find(wide, h);
    fmt::print("| {} | {} | {} | {}{} | ", h.op, h.pass, h.times,
               w == nullptr                ? "-, "
               : w->launches != h.launches ? fmt::format("{}, ", w->launches).c_str()
                                           : "",
               h.launches);
    if (w == nullptr) {
      fmt::print("- | {:.2f} | - | - | - | {:.2f} |\n", h.bytes / 1e6,
                 time_of(h, gpu, gpu.bfloat16));
      continue;
    }
    fmt::print("{:.2f} | {:.2f} | {} | {:.2f} | {:.2f} | {:.2f} |\n", w->bytes / 1e6, h.bytes / 1e6,
               h.flops > 0 ? fmt::format("{:.1f}", h.flops / 1e6).c_str() : "-",
               time_of(*w, gpu, gpu.float32), time_of(*w, gpu, gpu.tf32),
               time_of(h, gpu, gpu.bfloat16));
  }
}

void print_total(const char* precision, const Total& t, double bound) {
  fmt::print("| {} | {} | {:.1f} | {:.2f} | {:.1f} | {:.1f} | {:.1f} | {} |\n", precision,
             t.launches, t.bytes / 1e6, t.flops / 1e9, t.roof, t.time, bound,
             t.time <= bound ? "below" : "above");
}

bool differ(double a, double b) { return std::fabs(a - b) > 1e-9 * b; }

/// False if the FLOPs are wrong.
template <class Net>
bool print_bound(const char* name, std::size_t batch, bool momentum, double bound, const Gpu& gpu) {
  gpu_work::Step<ls::Cuda> wide(batch);
  wide.model<Net>(momentum);
  gpu_work::Step<ls::CudaBFloat16> half(batch);
  half.model<Net>(momentum);
  gpu_work::Step<ls::CudaFloat16> small(batch);
  small.model<Net>(momentum);

  // Backward computes each product twice more, except that the first layer's input has no gradient.
  const double examples = static_cast<double>(batch), graph = Net::graph.flops;
  const double first = Net::graph.node[0].flops;
  double forward = 0, all = wide.spared();
  for (const Part& p : wide.parts()) {
    if (p.pass == "forward") forward += p.times * p.flops;
    all += p.times * p.flops;
  }
  if (differ(forward, examples * graph) || differ(all, examples * (3 * graph - first))) {
    std::fputs(fmt::format(
                   "gpu_roofline: {}: {:.0f} FLOPs, {:.0f} of them forward; the graph has {:.0f}\n",
                   name, all, forward, examples * graph)
                   .c_str(),
               stderr);
    return false;
  }

  fmt::print("\n### {}, batch {}\n\n", name, batch);
  fmt::print(
      "| precision | launches | MB | GFLOP | bound of bytes and FLOPs, us | bound with {:.1f} us a "
      "launch, us | goal, us | bound and goal |\n|---|--:|--:|--:|--:|--:|--:|---|\n",
      gpu.floor);
  print_total("float32", total(wide.parts(), gpu, gpu.float32), bound);
  print_total("tf32", total(wide.parts(), gpu, gpu.tf32), bound);
  print_total("bfloat16", total(half.parts(), gpu, gpu.bfloat16), bound);
  print_total("float16", total(small.parts(), gpu, gpu.bfloat16), bound);
  fmt::print("\n");
  print_parts(wide.parts(), half.parts(), gpu);
  return true;
}

}  // namespace

int main(int count, char** arguments) {
  Gpu gpu;
  CLI::App app{
      "A lower bound for steps on a GPU from the plan: bytes, FLOPs, launches. Nothing is measured."};
  app.add_option("--terabytes", gpu.terabytes, "of memory a second")->check(CLI::PositiveNumber);
  app.add_option("--float32", gpu.float32, "TFLOP/s")->check(CLI::PositiveNumber);
  app.add_option("--tf32", gpu.tf32, "TFLOP/s")->check(CLI::PositiveNumber);
  app.add_option("--bfloat16", gpu.bfloat16, "TFLOP/s")->check(CLI::PositiveNumber);
  app.add_option("--floor", gpu.floor, "us that a launch in a graph takes at least; an assumption")
      ->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, count, arguments);

  fmt::print(
      "{:.1f} TB/s, {:.0f} TFLOP/s in float32, {:.0f} in tf32, {:.0f} in bfloat16, {:.1f} us a "
      "launch (assumed). Nothing was measured.\n",
      gpu.terabytes, gpu.float32, gpu.tf32, gpu.bfloat16, gpu.floor);
  const bool right =
      print_bound<Cnn>("The tutorials' CNN, SGD", 64, false, 15, gpu) &&
      print_bound<resnet::ResNet<9>>("ResNet-56, SGD with momentum", 128, true, 1200, gpu);
  return right ? 0 : 1;
}
