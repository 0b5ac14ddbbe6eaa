// A program that predicts and does nothing else; see predicting.py.
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/predictor.hpp>

namespace ls = lockstep;

namespace {

struct Net
    : ls::Sequential<ls::Input<28, 28, 1>, ls::RandomFlip<>, ls::Conv2D<16, 3>, ls::ReLU,
                     ls::Conv2D<16, 3>, ls::BatchNormalization<>, ls::ReLU, ls::MaxPooling2D<>,
                     ls::SeparableConv2D<8, 3>, ls::Tanh, ls::AveragePooling2D<>, ls::Flatten,
                     ls::LayerNormalization<>, ls::Dropout<ls::rate(0.5f)>, ls::Dense<64>, ls::GELU,
                     ls::Dense<64>, ls::ReLU, ls::Dense<10>, ls::Softmax> {};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 0;
  ls::Predictor<Net, ls::Cpu> predictor(argv[1]);
  std::vector<float> x(Net::input_shape.size()), y(10);
  predictor(x, y);
  predictor.load_weights(argv[1]);
  return static_cast<int>(predictor.predict(x).count());
}
