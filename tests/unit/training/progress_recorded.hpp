// Written by record_progress.py: what Keras' Progbar wrote. Do not edit.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/training/report/progress_bar.hpp"

// clang-format off
namespace recorded {
inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double inf = std::numeric_limits<double>::infinity();
struct Update { double time; unsigned step; std::vector<std::pair<std::string, double>> logs; std::string text; };
struct Scenario { lockstep::ProgressStyle style; const char* name; unsigned target; bool terminal; std::vector<Update> updates; };
inline constexpr double start = 1000;

inline const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = {
    {lockstep::ProgressStyle::keras, "steps of 12 ms are redrawn every 50 ms", 24, true, {
      {1000.3, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\015\033[1m 1/24\033[0m \033[37m━━━━━━━━━━━━━━━━━━━━\033[0m \033[1m6s\033[0m 300ms/step - accuracy: 0.1000 - loss: 2.5000"},
      {1000.312, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, ""},
      {1000.324, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, ""},
      {1000.336, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, ""},
      {1000.348, 5, {{"loss", 2.46}, {"accuracy", 0.14}}, ""},
      {1000.36, 6, {{"loss", 2.45}, {"accuracy", 0.15000000000000002}}, std::string(74, '\b') + "\015\033[1m 6/24\033[0m \033[32m━━━━━\033[0m\033[37m━━━━━━━━━━━━━━━\033[0m \033[1m0s\033[0m 12ms/step - accuracy: 0.1500 - loss: 2.4500 "},
      {1000.372, 7, {{"loss", 2.44}, {"accuracy", 0.16}}, ""},
      {1000.384, 8, {{"loss", 2.43}, {"accuracy", 0.17}}, ""},
      {1000.396, 9, {{"loss", 2.42}, {"accuracy", 0.18}}, ""},
      {1000.408, 10, {{"loss", 2.41}, {"accuracy", 0.19}}, ""},
      {1000.42, 11, {{"loss", 2.4}, {"accuracy", 0.2}}, std::string(73, '\b') + "\015\033[1m11/24\033[0m \033[32m━━━━━━━━━\033[0m\033[37m━━━━━━━━━━━\033[0m \033[1m0s\033[0m 12ms/step - accuracy: 0.2000 - loss: 2.4000"},
      {1000.432, 12, {{"loss", 2.39}, {"accuracy", 0.21000000000000002}}, ""},
      {1000.444, 13, {{"loss", 2.38}, {"accuracy", 0.22}}, ""},
      {1000.456, 14, {{"loss", 2.37}, {"accuracy", 0.23}}, ""},
      {1000.468, 15, {{"loss", 2.36}, {"accuracy", 0.24000000000000002}}, ""},
      {1000.48, 16, {{"loss", 2.35}, {"accuracy", 0.25}}, std::string(73, '\b') + "\015\033[1m16/24\033[0m \033[32m━━━━━━━━━━━━━\033[0m\033[37m━━━━━━━\033[0m \033[1m0s\033[0m 12ms/step - accuracy: 0.2500 - loss: 2.3500"},
      {1000.492, 17, {{"loss", 2.34}, {"accuracy", 0.26}}, ""},
      {1000.504, 18, {{"loss", 2.33}, {"accuracy", 0.27}}, ""},
      {1000.516, 19, {{"loss", 2.32}, {"accuracy", 0.28}}, ""},
      {1000.528, 20, {{"loss", 2.31}, {"accuracy", 0.29000000000000004}}, ""},
      {1000.54, 21, {{"loss", 2.3}, {"accuracy", 0.30000000000000004}}, std::string(73, '\b') + "\015\033[1m21/24\033[0m \033[32m━━━━━━━━━━━━━━━━━\033[0m\033[37m━━━\033[0m \033[1m0s\033[0m 12ms/step - accuracy: 0.3000 - loss: 2.3000"},
      {1000.552, 22, {{"loss", 2.29}, {"accuracy", 0.31}}, ""},
      {1000.564, 23, {{"loss", 2.28}, {"accuracy", 0.32}}, ""},
      {1000.576, 24, {{"loss", 2.27}, {"accuracy", 0.33}}, std::string(73, '\b') + "\015\033[1m24/24\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m1s\033[0m 12ms/step - accuracy: 0.3300 - loss: 2.2700\012"},
    }},
    {lockstep::ProgressStyle::keras, "five steps on a pipe", 5, false, {
      {1000.5, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\012\033[1m1/5\033[0m \033[32m━━━━\033[0m\033[37m━━━━━━━━━━━━━━━━\033[0m \033[1m2s\033[0m 500ms/step - accuracy: 0.1000 - loss: 2.5000"},
      {1000.6, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, "\012\033[1m2/5\033[0m \033[32m━━━━━━━━\033[0m\033[37m━━━━━━━━━━━━\033[0m \033[1m0s\033[0m 100ms/step - accuracy: 0.1100 - loss: 2.4900"},
      {1000.7, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, "\012\033[1m3/5\033[0m \033[32m━━━━━━━━━━━━\033[0m\033[37m━━━━━━━━\033[0m \033[1m0s\033[0m 100ms/step - accuracy: 0.1200 - loss: 2.4800"},
      {1000.8, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, "\012\033[1m4/5\033[0m \033[32m━━━━━━━━━━━━━━━━\033[0m\033[37m━━━━\033[0m \033[1m0s\033[0m 100ms/step - accuracy: 0.1300 - loss: 2.4700"},
      {1000.9, 5, {{"loss", 2.46}, {"accuracy", 0.14}}, "\012\033[1m5/5\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m1s\033[0m 100ms/step - accuracy: 0.1400 - loss: 2.4600\012"},
    }},
    {lockstep::ProgressStyle::keras, "one step", 1, true, {
      {1000.25, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\015\033[1m1/1\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m0s\033[0m 250ms/step - accuracy: 0.1000 - loss: 2.5000\012"},
    }},
    {lockstep::ProgressStyle::keras, "unknown target", 0, true, {
      {1000.2, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\015      1/Unknown \033[1m0s\033[0m 200ms/step - accuracy: 0.1000 - loss: 2.5000"},
      {1001.2, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, std::string(63, '\b') + "\015      2/Unknown \033[1m1s\033[0m 1s/step - accuracy: 0.1100 - loss: 2.4900   "},
      {1001.7, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, std::string(60, '\b') + "\015      3/Unknown \033[1m2s\033[0m 750ms/step - accuracy: 0.1200 - loss: 2.4800"},
      {1064.2, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, std::string(63, '\b') + "\015      4/Unknown \033[1m64s\033[0m 21s/step - accuracy: 0.1300 - loss: 2.4700 "},
      {1064.2, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, std::string(62, '\b') + "\015\033[1m4/4\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m64s\033[0m 21s/step - accuracy: 0.1300 - loss: 2.4700\012"},
    }},
    {lockstep::ProgressStyle::keras, "unknown target on a pipe", 0, false, {
      {1000.2, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\012      1/Unknown \033[1m0s\033[0m 200ms/step - accuracy: 0.1000 - loss: 2.5000"},
      {1001.2, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, "\012      2/Unknown \033[1m1s\033[0m 1s/step - accuracy: 0.1100 - loss: 2.4900   "},
      {1001.7, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, "\012      3/Unknown \033[1m2s\033[0m 750ms/step - accuracy: 0.1200 - loss: 2.4800"},
      {1001.7, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, "\012\033[1m3/3\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m2s\033[0m 750ms/step - accuracy: 0.1200 - loss: 2.4800\012"},
    }},
    {lockstep::ProgressStyle::keras, "hours, minutes, seconds to go", 4000, true, {
      {1002.0, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\015\033[1m   1/4000\033[0m \033[37m━━━━━━━━━━━━━━━━━━━━\033[0m \033[1m2:13:18\033[0m 2s/step - accuracy: 0.1000 - loss: 2.5000"},
      {1003.0, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, std::string(80, '\b') + "\015\033[1m   2/4000\033[0m \033[37m━━━━━━━━━━━━━━━━━━━━\033[0m \033[1m1:06:38\033[0m 1s/step - accuracy: 0.1100 - loss: 2.4900"},
      {1004.5, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, std::string(80, '\b') + "\015\033[1m   3/4000\033[0m \033[37m━━━━━━━━━━━━━━━━━━━━\033[0m \033[1m1:23:16\033[0m 1s/step - accuracy: 0.1200 - loss: 2.4800"},
      {1004.6, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, std::string(80, '\b') + "\015\033[1m   4/4000\033[0m \033[37m━━━━━━━━━━━━━━━━━━━━\033[0m \033[1m57:43\033[0m 867ms/step - accuracy: 0.1300 - loss: 2.4700"},
      {1005.9, 5, {{"loss", 2.46}, {"accuracy", 0.14}}, std::string(81, '\b') + "\015\033[1m   5/4000\033[0m \033[37m━━━━━━━━━━━━━━━━━━━━\033[0m \033[1m1:04:55\033[0m 975ms/step - accuracy: 0.1400 - loss: 2.4600"},
      {1006.0, 6, {{"loss", 2.45}, {"accuracy", 0.15000000000000002}}, std::string(83, '\b') + "\015\033[1m   6/4000\033[0m \033[37m━━━━━━━━━━━━━━━━━━━━\033[0m \033[1m6s\033[0m 800ms/step - accuracy: 0.1500 - loss: 2.4500     \012"},
    }},
    {lockstep::ProgressStyle::keras, "one second more than an hour", 3603, true, {
      {1009.0, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\015\033[1m   1/3603\033[0m \033[37m━━━━━━━━━━━━━━━━━━━━\033[0m \033[1m9:00:18\033[0m 9s/step - accuracy: 0.1000 - loss: 2.5000"},
      {1010.0, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, std::string(80, '\b') + "\015\033[1m   2/3603\033[0m \033[37m━━━━━━━━━━━━━━━━━━━━\033[0m \033[1m1:00:01\033[0m 1s/step - accuracy: 0.1100 - loss: 2.4900"},
      {1011.0, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, std::string(80, '\b') + "\015\033[1m   3/3603\033[0m \033[37m━━━━━━━━━━━━━━━━━━━━\033[0m \033[1m11s\033[0m 1s/step - accuracy: 0.1200 - loss: 2.4800    \012"},
    }},
    {lockstep::ProgressStyle::keras, "a step in microseconds", 9, true, {
      {1000.1, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\015\033[1m1/9\033[0m \033[32m━━\033[0m\033[37m━━━━━━━━━━━━━━━━━━\033[0m \033[1m0s\033[0m 100ms/step - accuracy: 0.1000 - loss: 2.5000"},
      {1000.1004, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, ""},
      {1000.1009, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, ""},
      {1000.2, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, std::string(72, '\b') + "\015\033[1m4/9\033[0m \033[32m━━━━━━━━\033[0m\033[37m━━━━━━━━━━━━\033[0m \033[1m0s\033[0m 33ms/step - accuracy: 0.1300 - loss: 2.4700 \012"},
    }},
    {lockstep::ProgressStyle::keras, "a step without time", 3, true, {
      {1000.0, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\015\033[1m1/3\033[0m \033[32m━━━━━━\033[0m\033[37m━━━━━━━━━━━━━━\033[0m \033[1m0s\033[0m 0s/step - accuracy: 0.1000 - loss: 2.5000"},
      {1000.0, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, ""},
      {1000.0, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, std::string(69, '\b') + "\015\033[1m3/3\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m0s\033[0m 0s/step - accuracy: 0.1200 - loss: 2.4800\012"},
    }},
    {lockstep::ProgressStyle::keras, "a slow step", 3, true, {
      {1001.0, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\015\033[1m1/3\033[0m \033[32m━━━━━━\033[0m\033[37m━━━━━━━━━━━━━━\033[0m \033[1m2s\033[0m 1s/step - accuracy: 0.1000 - loss: 2.5000"},
      {1003.5, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, std::string(69, '\b') + "\015\033[1m2/3\033[0m \033[32m━━━━━━━━━━━━━\033[0m\033[37m━━━━━━━\033[0m \033[1m2s\033[0m 2s/step - accuracy: 0.1100 - loss: 2.4900"},
      {1006.0, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, std::string(69, '\b') + "\015\033[1m3/3\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m6s\033[0m 2s/step - accuracy: 0.1200 - loss: 2.4800\012"},
    }},
    {lockstep::ProgressStyle::keras, "a line that gets shorter is padded", 900, true, {
      {1009.0, 1, {{"loss", 1000000000.0}}, "\015\033[1m  1/900\033[0m \033[37m━━━━━━━━━━━━━━━━━━━━\033[0m \033[1m2:14:51\033[0m 9s/step - loss: 1000000000.0000"},
      {1009.1, 2, {{"loss", 10000000.0}}, std::string(68, '\b') + "\015\033[1m  2/900\033[0m \033[37m━━━━━━━━━━━━━━━━━━━━\033[0m \033[1m1:29\033[0m 100ms/step - loss: 10000000.0000  "},
      {1009.2, 3, {{"loss", 100000.0}}, std::string(66, '\b') + "\015\033[1m  3/900\033[0m \033[37m━━━━━━━━━━━━━━━━━━━━\033[0m \033[1m1:29\033[0m 100ms/step - loss: 100000.0000  "},
      {1009.3, 4, {{"loss", 1000.0}}, std::string(64, '\b') + "\015\033[1m  4/900\033[0m \033[37m━━━━━━━━━━━━━━━━━━━━\033[0m \033[1m9s\033[0m 100ms/step - loss: 1000.0000    \012"},
    }},
    {lockstep::ProgressStyle::keras, "a value that comes at the end", 2, true, {
      {1001.0, 1, {{"loss", 1.5}, {"acc", 0.5}}, "\015\033[1m1/2\033[0m \033[32m━━━━━━━━━━\033[0m\033[37m━━━━━━━━━━\033[0m \033[1m1s\033[0m 1s/step - acc: 0.5000 - loss: 1.5000"},
      {1002.0, 2, {{"loss", 1.25}, {"acc", 0.75}, {"Zeta", 1.0}, {"val_loss", 1.0}}, std::string(64, '\b') + "\015\033[1m2/2\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m2s\033[0m 1s/step - acc: 0.7500 - loss: 1.2500 - Zeta: 1.0000 - val_loss: 1.0000\012"},
    }},
    {lockstep::ProgressStyle::keras, "no values", 2, true, {
      {1001.0, 1, {}, "\015\033[1m1/2\033[0m \033[32m━━━━━━━━━━\033[0m\033[37m━━━━━━━━━━\033[0m \033[1m1s\033[0m 1s/step"},
      {1002.0, 2, {}, std::string(35, '\b') + "\015\033[1m2/2\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m2s\033[0m 1s/step\012"},
    }},
    {lockstep::ProgressStyle::keras, "a name that is not ASCII", 9, true, {
      {1001.0, 1, {{"größe", 10.0}}, "\015\033[1m1/9\033[0m \033[32m━━\033[0m\033[37m━━━━━━━━━━━━━━━━━━\033[0m \033[1m8s\033[0m 1s/step - größe: 10.0000"},
      {1001.1, 2, {{"größe", 0.09999999999999964}}, std::string(52, '\b') + "\015\033[1m2/9\033[0m \033[32m━━━━\033[0m\033[37m━━━━━━━━━━━━━━━━\033[0m \033[1m0s\033[0m 100ms/step - größe: 0.1000"},
      {1099.0, 3, {{"größe", 0.09999999999999964}}, std::string(54, '\b') + "\015\033[1m3/9\033[0m \033[32m━━━━━━\033[0m\033[37m━━━━━━━━━━━━━━\033[0m \033[1m99s\033[0m 49s/step - größe: 0.1000 \012"},
    }},
    {lockstep::ProgressStyle::keras, "metric 0.001", 2, false, {
      {1001.0, 1, {{"loss", 0.001}}, "\012\033[1m1/2\033[0m \033[32m━━━━━━━━━━\033[0m\033[37m━━━━━━━━━━\033[0m \033[1m1s\033[0m 1s/step - loss: 1.0000e-03"},
      {1002.0, 2, {{"loss", 0.001}}, "\012\033[1m2/2\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m2s\033[0m 1s/step - loss: 1.0000e-03\012"},
    }},
    {lockstep::ProgressStyle::keras, "metric 0.0010001", 2, false, {
      {1001.0, 1, {{"loss", 0.0010001}}, "\012\033[1m1/2\033[0m \033[32m━━━━━━━━━━\033[0m\033[37m━━━━━━━━━━\033[0m \033[1m1s\033[0m 1s/step - loss: 0.0010"},
      {1002.0, 2, {{"loss", 0.0010001}}, "\012\033[1m2/2\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m2s\033[0m 1s/step - loss: 0.0010\012"},
    }},
    {lockstep::ProgressStyle::keras, "metric -0.001", 2, false, {
      {1001.0, 1, {{"loss", -0.001}}, "\012\033[1m1/2\033[0m \033[32m━━━━━━━━━━\033[0m\033[37m━━━━━━━━━━\033[0m \033[1m1s\033[0m 1s/step - loss: -1.0000e-03"},
      {1002.0, 2, {{"loss", -0.001}}, "\012\033[1m2/2\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m2s\033[0m 1s/step - loss: -1.0000e-03\012"},
    }},
    {lockstep::ProgressStyle::keras, "metric -0.5", 2, false, {
      {1001.0, 1, {{"loss", -0.5}}, "\012\033[1m1/2\033[0m \033[32m━━━━━━━━━━\033[0m\033[37m━━━━━━━━━━\033[0m \033[1m1s\033[0m 1s/step - loss: -0.5000"},
      {1002.0, 2, {{"loss", -0.5}}, "\012\033[1m2/2\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m2s\033[0m 1s/step - loss: -0.5000\012"},
    }},
    {lockstep::ProgressStyle::keras, "metric 0.0", 2, false, {
      {1001.0, 1, {{"loss", 0.0}}, "\012\033[1m1/2\033[0m \033[32m━━━━━━━━━━\033[0m\033[37m━━━━━━━━━━\033[0m \033[1m1s\033[0m 1s/step - loss: 0.0000e+00"},
      {1002.0, 2, {{"loss", 0.0}}, "\012\033[1m2/2\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m2s\033[0m 1s/step - loss: 0.0000e+00\012"},
    }},
    {lockstep::ProgressStyle::keras, "metric 12345.678", 2, false, {
      {1001.0, 1, {{"loss", 12345.678}}, "\012\033[1m1/2\033[0m \033[32m━━━━━━━━━━\033[0m\033[37m━━━━━━━━━━\033[0m \033[1m1s\033[0m 1s/step - loss: 12345.6780"},
      {1002.0, 2, {{"loss", 12345.678}}, "\012\033[1m2/2\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m2s\033[0m 1s/step - loss: 12345.6780\012"},
    }},
    {lockstep::ProgressStyle::keras, "metric 1000000000000.0", 2, false, {
      {1001.0, 1, {{"loss", 1000000000000.0}}, "\012\033[1m1/2\033[0m \033[32m━━━━━━━━━━\033[0m\033[37m━━━━━━━━━━\033[0m \033[1m1s\033[0m 1s/step - loss: 1000000000000.0000"},
      {1002.0, 2, {{"loss", 1000000000000.0}}, "\012\033[1m2/2\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m2s\033[0m 1s/step - loss: 1000000000000.0000\012"},
    }},
    {lockstep::ProgressStyle::keras, "metric nan", 2, false, {
      {1001.0, 1, {{"loss", nan}}, "\012\033[1m1/2\033[0m \033[32m━━━━━━━━━━\033[0m\033[37m━━━━━━━━━━\033[0m \033[1m1s\033[0m 1s/step - loss: nan"},
      {1002.0, 2, {{"loss", nan}}, "\012\033[1m2/2\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m2s\033[0m 1s/step - loss: nan\012"},
    }},
    {lockstep::ProgressStyle::keras, "metric inf", 2, false, {
      {1001.0, 1, {{"loss", inf}}, "\012\033[1m1/2\033[0m \033[32m━━━━━━━━━━\033[0m\033[37m━━━━━━━━━━\033[0m \033[1m1s\033[0m 1s/step - loss: inf"},
      {1002.0, 2, {{"loss", inf}}, "\012\033[1m2/2\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m2s\033[0m 1s/step - loss: inf\012"},
    }},
    {lockstep::ProgressStyle::keras, "metric 5e-05", 2, false, {
      {1001.0, 1, {{"loss", 5e-05}}, "\012\033[1m1/2\033[0m \033[32m━━━━━━━━━━\033[0m\033[37m━━━━━━━━━━\033[0m \033[1m1s\033[0m 1s/step - loss: 5.0000e-05"},
      {1002.0, 2, {{"loss", 5e-05}}, "\012\033[1m2/2\033[0m \033[32m━━━━━━━━━━━━━━━━━━━━\033[0m\033[37m\033[0m \033[1m2s\033[0m 1s/step - loss: 5.0000e-05\012"},
    }},
    {lockstep::ProgressStyle::classic, "steps of 12 ms are redrawn every 50 ms", 24, true, {
      {1000.3, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\015 1/24 [>.............................] - ETA: 6s - loss: 2.5000 - accuracy: 0.1000"},
      {1000.312, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, ""},
      {1000.324, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, ""},
      {1000.336, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, ""},
      {1000.348, 5, {{"loss", 2.46}, {"accuracy", 0.14}}, ""},
      {1000.36, 6, {{"loss", 2.45}, {"accuracy", 0.15000000000000002}}, std::string(82, '\b') + "\015 6/24 [======>.......................] - ETA: 0s - loss: 2.4500 - accuracy: 0.1500"},
      {1000.372, 7, {{"loss", 2.44}, {"accuracy", 0.16}}, ""},
      {1000.384, 8, {{"loss", 2.43}, {"accuracy", 0.17}}, ""},
      {1000.396, 9, {{"loss", 2.42}, {"accuracy", 0.18}}, ""},
      {1000.408, 10, {{"loss", 2.41}, {"accuracy", 0.19}}, ""},
      {1000.42, 11, {{"loss", 2.4}, {"accuracy", 0.2}}, std::string(82, '\b') + "\01511/24 [============>.................] - ETA: 0s - loss: 2.4000 - accuracy: 0.2000"},
      {1000.432, 12, {{"loss", 2.39}, {"accuracy", 0.21000000000000002}}, ""},
      {1000.444, 13, {{"loss", 2.38}, {"accuracy", 0.22}}, ""},
      {1000.456, 14, {{"loss", 2.37}, {"accuracy", 0.23}}, ""},
      {1000.468, 15, {{"loss", 2.36}, {"accuracy", 0.24000000000000002}}, ""},
      {1000.48, 16, {{"loss", 2.35}, {"accuracy", 0.25}}, std::string(82, '\b') + "\01516/24 [===================>..........] - ETA: 0s - loss: 2.3500 - accuracy: 0.2500"},
      {1000.492, 17, {{"loss", 2.34}, {"accuracy", 0.26}}, ""},
      {1000.504, 18, {{"loss", 2.33}, {"accuracy", 0.27}}, ""},
      {1000.516, 19, {{"loss", 2.32}, {"accuracy", 0.28}}, ""},
      {1000.528, 20, {{"loss", 2.31}, {"accuracy", 0.29000000000000004}}, ""},
      {1000.54, 21, {{"loss", 2.3}, {"accuracy", 0.30000000000000004}}, std::string(82, '\b') + "\01521/24 [=========================>....] - ETA: 0s - loss: 2.3000 - accuracy: 0.3000"},
      {1000.552, 22, {{"loss", 2.29}, {"accuracy", 0.31}}, ""},
      {1000.564, 23, {{"loss", 2.28}, {"accuracy", 0.32}}, ""},
      {1000.576, 24, {{"loss", 2.27}, {"accuracy", 0.33}}, std::string(82, '\b') + "\01524/24 [==============================] - 1s 12ms/step - loss: 2.2700 - accuracy: 0.3300\012"},
    }},
    {lockstep::ProgressStyle::classic, "five steps on a pipe", 5, false, {
      {1000.5, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\0121/5 [=====>........................] - ETA: 2s - loss: 2.5000 - accuracy: 0.1000"},
      {1000.6, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, "\0122/5 [===========>..................] - ETA: 0s - loss: 2.4900 - accuracy: 0.1100"},
      {1000.7, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, "\0123/5 [=================>............] - ETA: 0s - loss: 2.4800 - accuracy: 0.1200"},
      {1000.8, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, "\0124/5 [=======================>......] - ETA: 0s - loss: 2.4700 - accuracy: 0.1300"},
      {1000.9, 5, {{"loss", 2.46}, {"accuracy", 0.14}}, "\0125/5 [==============================] - 1s 100ms/step - loss: 2.4600 - accuracy: 0.1400\012"},
    }},
    {lockstep::ProgressStyle::classic, "one step", 1, true, {
      {1000.25, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\0151/1 [==============================] - 0s 250ms/step - loss: 2.5000 - accuracy: 0.1000\012"},
    }},
    {lockstep::ProgressStyle::classic, "unknown target", 0, true, {
      {1000.2, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\015      1/Unknown - 0s 200ms/step - loss: 2.5000 - accuracy: 0.1000"},
      {1001.2, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, std::string(65, '\b') + "\015      2/Unknown - 1s 1s/step - loss: 2.4900 - accuracy: 0.1100   "},
      {1001.7, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, std::string(62, '\b') + "\015      3/Unknown - 2s 750ms/step - loss: 2.4800 - accuracy: 0.1200"},
      {1064.2, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, std::string(65, '\b') + "\015      4/Unknown - 64s 21s/step - loss: 2.4700 - accuracy: 0.1300 "},
      {1064.2, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, std::string(64, '\b') + "\0154/4 [==============================] - 64s 21s/step - loss: 2.4700 - accuracy: 0.1300\012"},
    }},
    {lockstep::ProgressStyle::classic, "unknown target on a pipe", 0, false, {
      {1000.2, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\012      1/Unknown - 0s 200ms/step - loss: 2.5000 - accuracy: 0.1000"},
      {1001.2, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, "\012      2/Unknown - 1s 1s/step - loss: 2.4900 - accuracy: 0.1100   "},
      {1001.7, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, "\012      3/Unknown - 2s 750ms/step - loss: 2.4800 - accuracy: 0.1200"},
      {1001.7, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, "\0123/3 [==============================] - 2s 750ms/step - loss: 2.4800 - accuracy: 0.1200\012"},
    }},
    {lockstep::ProgressStyle::classic, "hours, minutes, seconds to go", 4000, true, {
      {1002.0, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\015   1/4000 [..............................] - ETA: 2:13:18 - loss: 2.5000 - accuracy: 0.1000"},
      {1003.0, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, std::string(91, '\b') + "\015   2/4000 [..............................] - ETA: 1:06:38 - loss: 2.4900 - accuracy: 0.1100"},
      {1004.5, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, std::string(91, '\b') + "\015   3/4000 [..............................] - ETA: 1:23:16 - loss: 2.4800 - accuracy: 0.1200"},
      {1004.6, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, std::string(91, '\b') + "\015   4/4000 [..............................] - ETA: 57:43 - loss: 2.4700 - accuracy: 0.1300  "},
      {1005.9, 5, {{"loss", 2.46}, {"accuracy", 0.14}}, std::string(89, '\b') + "\015   5/4000 [..............................] - ETA: 1:04:55 - loss: 2.4600 - accuracy: 0.1400"},
      {1006.0, 6, {{"loss", 2.45}, {"accuracy", 0.15000000000000002}}, std::string(91, '\b') + "\015   6/4000 [..............................] - 6s 800ms/step - loss: 2.4500 - accuracy: 0.1500\012"},
    }},
    {lockstep::ProgressStyle::classic, "one second more than an hour", 3603, true, {
      {1009.0, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\015   1/3603 [..............................] - ETA: 9:00:18 - loss: 2.5000 - accuracy: 0.1000"},
      {1010.0, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, std::string(91, '\b') + "\015   2/3603 [..............................] - ETA: 1:00:01 - loss: 2.4900 - accuracy: 0.1100"},
      {1011.0, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, std::string(91, '\b') + "\015   3/3603 [..............................] - 11s 1s/step - loss: 2.4800 - accuracy: 0.1200 \012"},
    }},
    {lockstep::ProgressStyle::classic, "a step in microseconds", 9, true, {
      {1000.1, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\0151/9 [==>...........................] - ETA: 0s - loss: 2.5000 - accuracy: 0.1000"},
      {1000.1004, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, ""},
      {1000.1009, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, ""},
      {1000.2, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, std::string(80, '\b') + "\0154/9 [============>.................] - 0s 33ms/step - loss: 2.4700 - accuracy: 0.1300\012"},
    }},
    {lockstep::ProgressStyle::classic, "a step without time", 3, true, {
      {1000.0, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\0151/3 [=========>....................] - ETA: 0s - loss: 2.5000 - accuracy: 0.1000"},
      {1000.0, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, ""},
      {1000.0, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, std::string(80, '\b') + "\0153/3 [==============================] - 0s 0s/step - loss: 2.4800 - accuracy: 0.1200\012"},
    }},
    {lockstep::ProgressStyle::classic, "a slow step", 3, true, {
      {1001.0, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "\0151/3 [=========>....................] - ETA: 2s - loss: 2.5000 - accuracy: 0.1000"},
      {1003.5, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, std::string(80, '\b') + "\0152/3 [===================>..........] - ETA: 2s - loss: 2.4900 - accuracy: 0.1100"},
      {1006.0, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, std::string(80, '\b') + "\0153/3 [==============================] - 6s 2s/step - loss: 2.4800 - accuracy: 0.1200\012"},
    }},
    {lockstep::ProgressStyle::classic, "a line that gets shorter is padded", 900, true, {
      {1009.0, 1, {{"loss", 1000000000.0}}, "\015  1/900 [..............................] - ETA: 2:14:51 - loss: 1000000000.0000"},
      {1009.1, 2, {{"loss", 10000000.0}}, std::string(79, '\b') + "\015  2/900 [..............................] - ETA: 1:29 - loss: 10000000.0000     "},
      {1009.2, 3, {{"loss", 100000.0}}, std::string(74, '\b') + "\015  3/900 [..............................] - ETA: 1:29 - loss: 100000.0000  "},
      {1009.3, 4, {{"loss", 1000.0}}, std::string(72, '\b') + "\015  4/900 [..............................] - 9s 100ms/step - loss: 1000.0000\012"},
    }},
    {lockstep::ProgressStyle::classic, "a value that comes at the end", 2, true, {
      {1001.0, 1, {{"loss", 1.5}, {"acc", 0.5}}, "\0151/2 [==============>...............] - ETA: 1s - loss: 1.5000 - acc: 0.5000"},
      {1002.0, 2, {{"loss", 1.25}, {"acc", 0.75}, {"Zeta", 1.0}, {"val_loss", 1.0}}, std::string(75, '\b') + "\0152/2 [==============================] - 2s 1s/step - loss: 1.2500 - acc: 0.7500 - Zeta: 1.0000 - val_loss: 1.0000\012"},
    }},
    {lockstep::ProgressStyle::classic, "no values", 2, true, {
      {1001.0, 1, {}, "\0151/2 [==============>...............] - ETA: 1s"},
      {1002.0, 2, {}, std::string(46, '\b') + "\0152/2 [==============================] - 2s 1s/step\012"},
    }},
    {lockstep::ProgressStyle::classic, "a name that is not ASCII", 9, true, {
      {1001.0, 1, {{"größe", 10.0}}, "\0151/9 [==>...........................] - ETA: 8s - größe: 10.0000"},
      {1001.1, 2, {{"größe", 0.09999999999999964}}, std::string(63, '\b') + "\0152/9 [=====>........................] - ETA: 0s - größe: 0.1000 "},
      {1099.0, 3, {{"größe", 0.09999999999999964}}, std::string(62, '\b') + "\0153/9 [=========>....................] - 99s 49s/step - größe: 0.1000\012"},
    }},
    {lockstep::ProgressStyle::classic, "metric 0.001", 2, false, {
      {1001.0, 1, {{"loss", 0.001}}, "\0121/2 [==============>...............] - ETA: 1s - loss: 1.0000e-03"},
      {1002.0, 2, {{"loss", 0.001}}, "\0122/2 [==============================] - 2s 1s/step - loss: 1.0000e-03\012"},
    }},
    {lockstep::ProgressStyle::classic, "metric 0.0010001", 2, false, {
      {1001.0, 1, {{"loss", 0.0010001}}, "\0121/2 [==============>...............] - ETA: 1s - loss: 0.0010"},
      {1002.0, 2, {{"loss", 0.0010001}}, "\0122/2 [==============================] - 2s 1s/step - loss: 0.0010\012"},
    }},
    {lockstep::ProgressStyle::classic, "metric -0.001", 2, false, {
      {1001.0, 1, {{"loss", -0.001}}, "\0121/2 [==============>...............] - ETA: 1s - loss: -1.0000e-03"},
      {1002.0, 2, {{"loss", -0.001}}, "\0122/2 [==============================] - 2s 1s/step - loss: -1.0000e-03\012"},
    }},
    {lockstep::ProgressStyle::classic, "metric -0.5", 2, false, {
      {1001.0, 1, {{"loss", -0.5}}, "\0121/2 [==============>...............] - ETA: 1s - loss: -0.5000"},
      {1002.0, 2, {{"loss", -0.5}}, "\0122/2 [==============================] - 2s 1s/step - loss: -0.5000\012"},
    }},
    {lockstep::ProgressStyle::classic, "metric 0.0", 2, false, {
      {1001.0, 1, {{"loss", 0.0}}, "\0121/2 [==============>...............] - ETA: 1s - loss: 0.0000e+00"},
      {1002.0, 2, {{"loss", 0.0}}, "\0122/2 [==============================] - 2s 1s/step - loss: 0.0000e+00\012"},
    }},
    {lockstep::ProgressStyle::classic, "metric 12345.678", 2, false, {
      {1001.0, 1, {{"loss", 12345.678}}, "\0121/2 [==============>...............] - ETA: 1s - loss: 12345.6780"},
      {1002.0, 2, {{"loss", 12345.678}}, "\0122/2 [==============================] - 2s 1s/step - loss: 12345.6780\012"},
    }},
    {lockstep::ProgressStyle::classic, "metric 1000000000000.0", 2, false, {
      {1001.0, 1, {{"loss", 1000000000000.0}}, "\0121/2 [==============>...............] - ETA: 1s - loss: 1000000000000.0000"},
      {1002.0, 2, {{"loss", 1000000000000.0}}, "\0122/2 [==============================] - 2s 1s/step - loss: 1000000000000.0000\012"},
    }},
    {lockstep::ProgressStyle::classic, "metric nan", 2, false, {
      {1001.0, 1, {{"loss", nan}}, "\0121/2 [==============>...............] - ETA: 1s - loss: nan"},
      {1002.0, 2, {{"loss", nan}}, "\0122/2 [==============================] - 2s 1s/step - loss: nan\012"},
    }},
    {lockstep::ProgressStyle::classic, "metric inf", 2, false, {
      {1001.0, 1, {{"loss", inf}}, "\0121/2 [==============>...............] - ETA: 1s - loss: inf"},
      {1002.0, 2, {{"loss", inf}}, "\0122/2 [==============================] - 2s 1s/step - loss: inf\012"},
    }},
    {lockstep::ProgressStyle::classic, "metric 5e-05", 2, false, {
      {1001.0, 1, {{"loss", 5e-05}}, "\0121/2 [==============>...............] - ETA: 1s - loss: 5.0000e-05"},
      {1002.0, 2, {{"loss", 5e-05}}, "\0122/2 [==============================] - 2s 1s/step - loss: 5.0000e-05\012"},
    }},
    {lockstep::ProgressStyle::plain, "steps of 12 ms are redrawn every 50 ms", 24, true, {
      {1000.3, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, ""},
      {1000.312, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, ""},
      {1000.324, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, ""},
      {1000.336, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, ""},
      {1000.348, 5, {{"loss", 2.46}, {"accuracy", 0.14}}, ""},
      {1000.36, 6, {{"loss", 2.45}, {"accuracy", 0.15000000000000002}}, ""},
      {1000.372, 7, {{"loss", 2.44}, {"accuracy", 0.16}}, ""},
      {1000.384, 8, {{"loss", 2.43}, {"accuracy", 0.17}}, ""},
      {1000.396, 9, {{"loss", 2.42}, {"accuracy", 0.18}}, ""},
      {1000.408, 10, {{"loss", 2.41}, {"accuracy", 0.19}}, ""},
      {1000.42, 11, {{"loss", 2.4}, {"accuracy", 0.2}}, ""},
      {1000.432, 12, {{"loss", 2.39}, {"accuracy", 0.21000000000000002}}, ""},
      {1000.444, 13, {{"loss", 2.38}, {"accuracy", 0.22}}, ""},
      {1000.456, 14, {{"loss", 2.37}, {"accuracy", 0.23}}, ""},
      {1000.468, 15, {{"loss", 2.36}, {"accuracy", 0.24000000000000002}}, ""},
      {1000.48, 16, {{"loss", 2.35}, {"accuracy", 0.25}}, ""},
      {1000.492, 17, {{"loss", 2.34}, {"accuracy", 0.26}}, ""},
      {1000.504, 18, {{"loss", 2.33}, {"accuracy", 0.27}}, ""},
      {1000.516, 19, {{"loss", 2.32}, {"accuracy", 0.28}}, ""},
      {1000.528, 20, {{"loss", 2.31}, {"accuracy", 0.29000000000000004}}, ""},
      {1000.54, 21, {{"loss", 2.3}, {"accuracy", 0.30000000000000004}}, ""},
      {1000.552, 22, {{"loss", 2.29}, {"accuracy", 0.31}}, ""},
      {1000.564, 23, {{"loss", 2.28}, {"accuracy", 0.32}}, ""},
      {1000.576, 24, {{"loss", 2.27}, {"accuracy", 0.33}}, "24/24 - 1s - 24ms/step - accuracy: 0.3300 - loss: 2.2700\012"},
    }},
    {lockstep::ProgressStyle::plain, "five steps on a pipe", 5, false, {
      {1000.5, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, ""},
      {1000.6, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, ""},
      {1000.7, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, ""},
      {1000.8, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, ""},
      {1000.9, 5, {{"loss", 2.46}, {"accuracy", 0.14}}, "5/5 - 1s - 180ms/step - accuracy: 0.1400 - loss: 2.4600\012"},
    }},
    {lockstep::ProgressStyle::plain, "one step", 1, true, {
      {1000.25, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, "1/1 - 0s - 250ms/step - accuracy: 0.1000 - loss: 2.5000\012"},
    }},
    {lockstep::ProgressStyle::plain, "unknown target", 0, true, {
      {1000.2, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, ""},
      {1001.2, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, ""},
      {1001.7, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, ""},
      {1064.2, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, ""},
      {1064.2, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, "4/4 - 64s - 16s/step - accuracy: 0.1300 - loss: 2.4700\012"},
    }},
    {lockstep::ProgressStyle::plain, "unknown target on a pipe", 0, false, {
      {1000.2, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, ""},
      {1001.2, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, ""},
      {1001.7, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, ""},
      {1001.7, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, "3/3 - 2s - 567ms/step - accuracy: 0.1200 - loss: 2.4800\012"},
    }},
    {lockstep::ProgressStyle::plain, "hours, minutes, seconds to go", 4000, true, {
      {1002.0, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, ""},
      {1003.0, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, ""},
      {1004.5, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, ""},
      {1004.6, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, ""},
      {1005.9, 5, {{"loss", 2.46}, {"accuracy", 0.14}}, ""},
      {1006.0, 6, {{"loss", 2.45}, {"accuracy", 0.15000000000000002}}, "   6/4000 - 6s - 1s/step - accuracy: 0.1500 - loss: 2.4500\012"},
    }},
    {lockstep::ProgressStyle::plain, "one second more than an hour", 3603, true, {
      {1009.0, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, ""},
      {1010.0, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, ""},
      {1011.0, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, "   3/3603 - 11s - 4s/step - accuracy: 0.1200 - loss: 2.4800\012"},
    }},
    {lockstep::ProgressStyle::plain, "a step in microseconds", 9, true, {
      {1000.1, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, ""},
      {1000.1004, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, ""},
      {1000.1009, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, ""},
      {1000.2, 4, {{"loss", 2.47}, {"accuracy", 0.13}}, "4/9 - 0s - 50ms/step - accuracy: 0.1300 - loss: 2.4700\012"},
    }},
    {lockstep::ProgressStyle::plain, "a step without time", 3, true, {
      {1000.0, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, ""},
      {1000.0, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, ""},
      {1000.0, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, "3/3 - 0s - 0s/step - accuracy: 0.1200 - loss: 2.4800\012"},
    }},
    {lockstep::ProgressStyle::plain, "a slow step", 3, true, {
      {1001.0, 1, {{"loss", 2.5}, {"accuracy", 0.1}}, ""},
      {1003.5, 2, {{"loss", 2.49}, {"accuracy", 0.11}}, ""},
      {1006.0, 3, {{"loss", 2.48}, {"accuracy", 0.12000000000000001}}, "3/3 - 6s - 2s/step - accuracy: 0.1200 - loss: 2.4800\012"},
    }},
    {lockstep::ProgressStyle::plain, "a line that gets shorter is padded", 900, true, {
      {1009.0, 1, {{"loss", 1000000000.0}}, ""},
      {1009.1, 2, {{"loss", 10000000.0}}, ""},
      {1009.2, 3, {{"loss", 100000.0}}, ""},
      {1009.3, 4, {{"loss", 1000.0}}, "  4/900 - 9s - 2s/step - loss: 1000.0000\012"},
    }},
    {lockstep::ProgressStyle::plain, "a value that comes at the end", 2, true, {
      {1001.0, 1, {{"loss", 1.5}, {"acc", 0.5}}, ""},
      {1002.0, 2, {{"loss", 1.25}, {"acc", 0.75}, {"Zeta", 1.0}, {"val_loss", 1.0}}, "2/2 - 2s - 1s/step - Zeta: 1.0000 - acc: 0.7500 - loss: 1.2500 - val_loss: 1.0000\012"},
    }},
    {lockstep::ProgressStyle::plain, "no values", 2, true, {
      {1001.0, 1, {}, ""},
      {1002.0, 2, {}, "2/2 - 2s - 1s/step\012"},
    }},
    {lockstep::ProgressStyle::plain, "a name that is not ASCII", 9, true, {
      {1001.0, 1, {{"größe", 10.0}}, ""},
      {1001.1, 2, {{"größe", 0.09999999999999964}}, ""},
      {1099.0, 3, {{"größe", 0.09999999999999964}}, "3/9 - 99s - 33s/step - größe: 0.1000\012"},
    }},
    {lockstep::ProgressStyle::plain, "metric 0.001", 2, false, {
      {1001.0, 1, {{"loss", 0.001}}, ""},
      {1002.0, 2, {{"loss", 0.001}}, "2/2 - 2s - 1s/step - loss: 1.0000e-03\012"},
    }},
    {lockstep::ProgressStyle::plain, "metric 0.0010001", 2, false, {
      {1001.0, 1, {{"loss", 0.0010001}}, ""},
      {1002.0, 2, {{"loss", 0.0010001}}, "2/2 - 2s - 1s/step - loss: 0.0010\012"},
    }},
    {lockstep::ProgressStyle::plain, "metric -0.001", 2, false, {
      {1001.0, 1, {{"loss", -0.001}}, ""},
      {1002.0, 2, {{"loss", -0.001}}, "2/2 - 2s - 1s/step - loss: -1.0000e-03\012"},
    }},
    {lockstep::ProgressStyle::plain, "metric 0.0", 2, false, {
      {1001.0, 1, {{"loss", 0.0}}, ""},
      {1002.0, 2, {{"loss", 0.0}}, "2/2 - 2s - 1s/step - loss: 0.0000e+00\012"},
    }},
    {lockstep::ProgressStyle::plain, "metric 12345.678", 2, false, {
      {1001.0, 1, {{"loss", 12345.678}}, ""},
      {1002.0, 2, {{"loss", 12345.678}}, "2/2 - 2s - 1s/step - loss: 12345.6780\012"},
    }},
    {lockstep::ProgressStyle::plain, "metric 1000000000000.0", 2, false, {
      {1001.0, 1, {{"loss", 1000000000000.0}}, ""},
      {1002.0, 2, {{"loss", 1000000000000.0}}, "2/2 - 2s - 1s/step - loss: 1000000000000.0000\012"},
    }},
    {lockstep::ProgressStyle::plain, "metric nan", 2, false, {
      {1001.0, 1, {{"loss", nan}}, ""},
      {1002.0, 2, {{"loss", nan}}, "2/2 - 2s - 1s/step - loss: nan\012"},
    }},
    {lockstep::ProgressStyle::plain, "metric inf", 2, false, {
      {1001.0, 1, {{"loss", inf}}, ""},
      {1002.0, 2, {{"loss", inf}}, "2/2 - 2s - 1s/step - loss: inf\012"},
    }},
    {lockstep::ProgressStyle::plain, "metric 5e-05", 2, false, {
      {1001.0, 1, {{"loss", 5e-05}}, ""},
      {1002.0, 2, {{"loss", 5e-05}}, "2/2 - 2s - 1s/step - loss: 5.0000e-05\012"},
    }},
  };
  return all;
}
}  // namespace recorded
