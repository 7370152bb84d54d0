// An update of soft actor-critic or TD3 on the CPU, in place on the tensors of a learner.
//
// Everything is what the Python update computes (`learners/sac.py`, `learners/td3.py`), in the same
// order and with the same random numbers, which Python draws and hands in. Matrix products are those
// of `products.h`.
// Rows are taken in blocks, so that the activations of a block stay in the cache; gradients add up
// over the blocks. No floating-point option that hides NaN may be used to compile this file.

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "products.h"

// ---------------------------------------------------------------------------------------------
// What Python hands in. `compiled/structures.py` declares the same structures.
// ---------------------------------------------------------------------------------------------

constexpr int kMaxLayers = 8;

struct Parameter {  // of all E members, one after another
  float *value;
  float *target;  // moving copy, or null
  float *mean, *square;  // of Adam
  float *gradient;
  int64_t size;
};

struct Layer {
  Parameter weight;  // (E, inputs, outputs), or (outputs, inputs) if `outputs_first`
  Parameter bias;  // (E, outputs)
  Parameter scale, shift;  // of a layer norm, (E, outputs); null without one
  int32_t inputs, outputs;
};

enum Activation { kRelu, kTanh, kSilu, kElu, kGelu };

struct Network {
  Layer layers[kMaxLayers];
  int32_t depth, members, activation, layer_norm, outputs_first;
  int32_t bf16;  // products of hidden layers, not those of the last
  float norm_epsilon;
  // Running normaliser of the observations, in front of the network; null leaves them.
  const float *obs_mean, *obs_scale;
  float obs_clip;
  int32_t obs_size;
};

struct Adam {
  float *steps;  // counts of steps, one for each parameter
  int32_t count;
  double rate, beta1, beta2, epsilon, decay, max_norm;
};

enum TargetRule { kMinimum, kMean, kEach };
enum Objective { kFirst, kSmallest, kAverage };

struct Critics {
  Network network;
  Adam adam;
  int32_t atoms;  // 0: scalar values
  float low, spacing;  // support of categorical values
  int32_t rule;  // TargetRule
  int32_t objective;  // Objective
  const int64_t *drawn;  // members of the target that count, or null for all
  int32_t drawn_count;
  float tau;  // share that the targets move; 0 leaves them
};

struct Batch {  // `rows` rows; observations of the actor and of the critics
  int32_t rows;
  const float *actor_obs, *critic_obs, *action, *reward, *discount, *weight;
  const float *next_actor_obs, *next_critic_obs;
};

struct ActorRows {  // rows of the actor's step
  int32_t rows;
  const float *actor_obs, *critic_obs, *weight;
  const float *noise;  // (rows, A)
  const float *next_log_prob;  // (rows,), of the actions drawn at the next observations
};

enum Squash { kClamp, kSmooth };
enum TemperatureLoss { kAlpha, kLogAlpha, kSoftplus, kFixed };

struct Temperature {
  Parameter parameter;
  Adam adam;
  int32_t loss;  // TemperatureLoss
  float target_entropy;
};

struct SacUpdate {
  Batch batch;
  const float *next_noise;  // (rows, A)
  Network actor;
  Adam actor_adam;
  int32_t action_size;
  float log_std_min, log_std_max;
  int32_t log_std_bound;  // Squash
  Critics critics;
  Temperature temperature;
  int32_t entropy_in_target, entropy_at_next;
  int32_t temperature_with_critics;  // it steps with them, not with the actor
  int32_t update_temperature;  // it does so in this update
  ActorRows actor_rows;
  int32_t threads;  // members of the critics are shared among so many
  float *workspace;
  float *error;  // (rows,)
  float *next_log_prob;  // (rows,)
  float *metrics;  // critic_loss, q_mean, actor_loss, entropy, temperature
};

struct Td3Update {
  Batch batch;
  const float *next_noise;  // (rows, A), clipped
  Network actor;
  Adam actor_adam;
  int32_t action_size;
  int32_t target_actor;  // next actions come from the moving copy
  Critics critics;
  float actor_tau;  // share that the target actor moves
  int32_t threads;
  float *workspace;
  float *error;  // (rows,)
  float *metrics;  // critic_loss, q_mean, actor_loss
};

// ---------------------------------------------------------------------------------------------
// Elementary functions without branches or calls, so that loops of them are vectorised. A NaN
// stays one: every comparison below is false for it and keeps it.
// ---------------------------------------------------------------------------------------------

static inline float from_bits(int32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

static inline int32_t to_bits(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

// Cephes' expf: 2^n times a polynomial of the rest; relative error 2e-7.
static inline float exp_of(float x) {
  x = x > 88.8f ? 88.8f : x;
  x = x < -87.3f ? -87.3f : x;
  const float n = std::nearbyint(x * 1.44269504f);
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1;
  return p * from_bits((static_cast<int32_t>(n) + 127) << 23);
}

// Cephes' logf, for positive normal numbers.
static inline float log_of(float x) {
  int32_t bits = to_bits(x) - 0x3f3504f3;  // of sqrt(1/2)
  const float n = static_cast<float>(bits >> 23);
  const float m = from_bits((bits & 0x007fffff) + 0x3f3504f3) - 1;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  return (m * m * m * p - n * 2.12194440e-4f - 0.5f * m * m) + m + n * 0.693359375f;
}

// Cephes' tanhf: a polynomial near zero, where 1 - 2 / (exp(2x) + 1) would lose its digits.
static inline float tanh_of(float x) {
  const float size = x < 0 ? -x : x;
  const float far = 1 - 2 / (exp_of(2 * size) + 1);
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near = p * z * x + x;
  const float signed_far = x < 0 ? -far : far;
  return size > 0.625f ? signed_far : near;
}

// log(1 + exp(x)) = max(x, 0) + 2 atanh(e / (2 + e)) with e = exp(-|x|); relative error 1e-7.
static inline float softplus_of(float x) {
  const float size = x < 0 ? -x : x;
  const float e = exp_of(-size);
  const float s = e / (2 + e), z = s * s;
  float p = 1.0f / 15;
  p = p * z + 1.0f / 13;
  p = p * z + 1.0f / 11;
  p = p * z + 1.0f / 9;
  p = p * z + 1.0f / 7;
  p = p * z + 1.0f / 5;
  p = p * z + 1.0f / 3;
  p = p * z + 1;
  return (x < 0 ? 0 : x) + 2 * s * p;
}

static inline float sigmoid_of(float x) { return 1 / (1 + exp_of(-x)); }

// Activations: `of` the input, and `slope` from the input y and the output h.
struct Relu {
  static constexpr bool keeps_input = false;
  static inline float of(float y) { return y < 0 ? 0 : y; }
  static inline float slope(float, float h) { return h <= 0 ? 0 : 1; }
};
struct Tanh {
  static constexpr bool keeps_input = false;
  static inline float of(float y) { return tanh_of(y); }
  static inline float slope(float, float h) { return 1 - h * h; }
};
struct Elu {
  static constexpr bool keeps_input = false;
  // exp(y) - 1 = 2 tanh(y / 2) / (1 - tanh(y / 2)), which keeps its digits near zero.
  static inline float of(float y) {
    const float t = tanh_of(0.5f * (y < 0 ? y : 0));
    const float below = 2 * t / (1 - t);
    return y < 0 ? below : y;
  }
  static inline float slope(float, float h) { return h <= 0 ? h + 1 : 1; }
};
struct Silu {
  static constexpr bool keeps_input = true;
  static inline float of(float y) { return y * sigmoid_of(y); }
  static inline float slope(float y, float) {
    const float s = sigmoid_of(y);
    return s * (1 + y * (1 - s));
  }
};
struct Gelu {
  static constexpr bool keeps_input = true;
  static inline float of(float y) { return 0.5f * y * (1 + std::erf(y * 0.70710678f)); }
  static inline float slope(float y, float) {
    return 0.5f * (1 + std::erf(y * 0.70710678f)) + y * 0.39894228f * exp_of(-0.5f * y * y);
  }
};

// ---------------------------------------------------------------------------------------------
// Workspace
// ---------------------------------------------------------------------------------------------

// Hands out parts of the workspace; without one it only counts.
struct Arena {
  float *base;
  int64_t used = 0;
  explicit Arena(float *base) : base(base) {}
  float *take(int64_t floats) {
    float *part = base ? base + used : nullptr;
    used += (floats + 15) / 16 * 16;
    return part;
  }
};

// ---------------------------------------------------------------------------------------------
// Threads
// ---------------------------------------------------------------------------------------------

// While it lives, the calling thread takes numbers below 1.2e-38 for zero: what Adam keeps of a
// weight without gradients would fade to them and stay, and each costs many cycles in every update.
class TinyIsZero {
 public:
#ifdef __SSE__
  TinyIsZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~TinyIsZero() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#else
  TinyIsZero() {}
#endif
};

// Products of a member's forward pass below which waking a thread takes longer than it saves.
constexpr int64_t kWorthAThread = 8'000'000;

// Threads that share the members of an ensemble. What they compute does not depend on their number:
// each member is computed by one thread, and sums over members are made afterwards, in order.
class Team {
 public:
  // Calls apply(i, place) for all i; no two calls at the same time have the same place < threads.
  template <class Do>
  void each(int count, int threads, const Do &apply) {
    std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
    threads = std::min(threads, count);
    if (threads < 2 || !turn.owns_lock()) {  // another learner has the team
      for (int i = 0; i < count; i++) apply(i, 0);
      return;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      work_ = [&](int place) {
        for (int i = next_++; i < count; i = next_++) apply(i, place);
      };
      next_ = 0;
      open_ = working_ = hire(threads - 1);
      round_++;
    }
    begin_.notify_all();
    work_(0);
    std::unique_lock<std::mutex> lock(mutex_);
    working_ -= open_;  // all is begun: who has not come yet is not waited for
    open_ = 0;
    end_.wait(lock, [&] { return working_ == 0; });
  }

 private:
  // Number of threads that wait for work now, at most `count`.
  int hire(int count) {
    try {
      while (static_cast<int>(threads_->size()) < count)
        threads_->emplace_back([this] { serve(); });
    } catch (const std::system_error &) {  // the system gives no more
    }
    return std::min(count, static_cast<int>(threads_->size()));
  }

  void serve() {
    const TinyIsZero tiny;
    int64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      begin_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      if (open_ == 0) continue;
      const int place = open_--;
      lock.unlock();
      work_(place);
      lock.lock();
      if (--working_ == 0) end_.notify_one();
    }
  }

  std::mutex turn_, mutex_;
  std::condition_variable begin_, end_;
  std::vector<std::thread> *threads_ = new std::vector<std::thread>;  // wait until the process ends
  std::function<void(int)> work_;
  std::atomic<int> next_{0};
  int open_ = 0, working_ = 0;
  int64_t round_ = 0;
};

static Team *team = new Team;

// Threads do not follow into a forked process, where nobody would ever leave the locks.
static const int forks = pthread_atfork(nullptr, nullptr, [] { team = new Team; });

// ---------------------------------------------------------------------------------------------
// Networks: forward and backward passes of one member over a block of rows
// ---------------------------------------------------------------------------------------------

// What a forward pass leaves for the backward pass.
struct Pass {
  const float *input;  // (rows, inputs)
  float *hidden[kMaxLayers];  // outputs of the hidden layers, (rows, outputs)
  float *saved[kMaxLayers];  // normalised rows, or inputs of the activation, where it needs them
  float *inverse_std[kMaxLayers];  // of layer norm, (rows,)
  float *output;  // (rows, outputs of the last layer)
};

static int inputs_of(const Network &net) { return net.layers[0].inputs; }
static int outputs_of(const Network &net) { return net.layers[net.depth - 1].outputs; }

static Precision precision_of(const Network &net, int layer) {
  return net.bf16 && layer + 1 < net.depth ? kBf16 : kFp32;
}

// A BLAS has threads of its own.
static bool has_threads(const Network &net) {
  return products_of[kFp32].kind != kOurs || (net.bf16 && products_of[kBf16].kind != kOurs);
}

static bool keeps_input(int activation) { return activation == kSilu || activation == kGelu; }

static int64_t weights_of(const Network &net) {
  int64_t weights = 0;
  for (int l = 0; l < net.depth; l++)
    weights += static_cast<int64_t>(net.layers[l].inputs) * net.layers[l].outputs;
  return weights;
}

static int widest(const Network &net) {
  int width = 0;
  for (int l = 0; l < net.depth; l++)
    width = std::max({width, net.layers[l].inputs, net.layers[l].outputs});
  return width;
}

static Pass make_pass(const Network &net, int rows, Arena &arena) {
  Pass pass = {};
  for (int l = 0; l + 1 < net.depth; l++) {
    const int64_t size = static_cast<int64_t>(rows) * net.layers[l].outputs;
    pass.hidden[l] = arena.take(size);
    if (net.layer_norm || keeps_input(net.activation)) pass.saved[l] = arena.take(size);
    if (net.layer_norm) pass.inverse_std[l] = arena.take(rows);
  }
  pass.output = arena.take(static_cast<int64_t>(rows) * outputs_of(net));
  return pass;
}

static const float *part(const Parameter &p, int member, int members, bool target) {
  return (target ? p.target : p.value) + member * (p.size / members);
}

static float *gradient_part(const Parameter &p, int member, int members) {
  return p.gradient + member * (p.size / members);
}

// From the product in `z`, bias included, to the layer's output, in its place: [layer norm],
// activation.
template <class Act>
static void finish_hidden(const Network &net, const Layer &layer, int member, bool target,
                          int rows, float *z, float *saved, float *inverse_std) {
  const int width = layer.outputs;
  if (!net.layer_norm) {
    for (int r = 0; r < rows; r++) {
      float *__restrict row = z + static_cast<int64_t>(r) * width;
      if (Act::keeps_input) {
        float *__restrict kept = saved + static_cast<int64_t>(r) * width;
#pragma omp simd
        for (int j = 0; j < width; j++) {
          kept[j] = row[j];
          row[j] = Act::of(row[j]);
        }
      } else {
#pragma omp simd
        for (int j = 0; j < width; j++) row[j] = Act::of(row[j]);
      }
    }
    return;
  }
  const float *__restrict scale = part(layer.scale, member, net.members, target);
  const float *__restrict shift = part(layer.shift, member, net.members, target);
  for (int r = 0; r < rows; r++) {
    float *__restrict row = z + static_cast<int64_t>(r) * width;
    float *__restrict kept = saved + static_cast<int64_t>(r) * width;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < width; j++) sum += row[j];
    const float mean = sum / width;
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int j = 0; j < width; j++) squares += (row[j] - mean) * (row[j] - mean);
    const float inverse = 1 / std::sqrt(squares / width + net.norm_epsilon);
    inverse_std[r] = inverse;
#pragma omp simd
    for (int j = 0; j < width; j++) {
      const float normal = (row[j] - mean) * inverse;
      kept[j] = normal;
      row[j] = Act::of(normal * scale[j] + shift[j]);
    }
  }
}

// Linear map to a single output: a dot product for each row. Sums of as many rows as a vector has
// lanes are added up together.
static void dot_rows(int rows, int width, const float *x, const float *w, float bias, float *out) {
  int first = 0;
  if (width % kLanes == 0)
    for (; first + kLanes <= rows; first += kLanes) {
      Vector sums[kLanes];
      for (int i = 0; i < kLanes; i++) {
        const float *row = x + static_cast<int64_t>(first + i) * width;
        Vector sum = {};
        for (int j = 0; j < width; j += kLanes) sum += load(row + j) * load(w + j);
        sums[i] = sum;
      }
      transpose(sums);
      Vector total = broadcast(bias);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; i++) total += sums[i];
      store(out + first, total);
    }
  for (int r = first; r < rows; r++) {
    const float *__restrict row = x + static_cast<int64_t>(r) * width;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < width; j++) sum += row[j] * w[j];
    out[r] = sum + bias;
  }
}

// sum (width,) += the rows of x, (rows, width), each times weight(row).
template <class Weight>
static void add_rows(int rows, int width, const Weight &weight, const float *x,
                     float *__restrict sum) {
  int r = 0;
  for (; r + 4 <= rows; r += 4) {  // four at a time: each round waits for the sums of the last
    const float *__restrict at = x + static_cast<int64_t>(r) * width;
    const float a = weight(r), b = weight(r + 1), c = weight(r + 2), d = weight(r + 3);
#pragma omp simd
    for (int j = 0; j < width; j++)
      sum[j] += (a * at[j] + b * at[j + width]) + (c * at[j + 2 * width] + d * at[j + 3 * width]);
  }
  for (; r < rows; r++) {
    const float *__restrict at = x + static_cast<int64_t>(r) * width;
    const float a = weight(r);
#pragma omp simd
    for (int j = 0; j < width; j++) sum[j] += a * at[j];
  }
}

static float one_of(int) { return 1; }

static void forward(const Network &net, int member, bool target, int rows, const float *input,
                    Pass &pass) {
  pass.input = input;
  const float *x = input;
  for (int l = 0; l < net.depth; l++) {
    const Layer &layer = net.layers[l];
    const bool last = l + 1 == net.depth;
    const float *weight = part(layer.weight, member, net.members, target);
    float *z = last ? pass.output : pass.hidden[l];
    if (last && layer.outputs == 1) {
      dot_rows(rows, layer.inputs, x, weight, *part(layer.bias, member, net.members, target), z);
      return;
    }
    Finish finish;
    const bool plain_relu = net.activation == kRelu && !net.layer_norm;
    finish.bias = part(layer.bias, member, net.members, target);
    finish.relu = plain_relu && !last;
    product(precision_of(net, l), false, net.outputs_first, rows, layer.outputs, layer.inputs, x,
            layer.inputs, weight, net.outputs_first ? layer.inputs : layer.outputs, z,
            layer.outputs, finish);
    if (last) return;
    x = z;
    if (plain_relu) continue;
    float *saved = pass.saved[l], *inverse_std = pass.inverse_std[l];
    switch (net.activation) {
      case kRelu: finish_hidden<Relu>(net, layer, member, target, rows, z, saved, inverse_std); break;
      case kTanh: finish_hidden<Tanh>(net, layer, member, target, rows, z, saved, inverse_std); break;
      case kSilu: finish_hidden<Silu>(net, layer, member, target, rows, z, saved, inverse_std); break;
      case kElu: finish_hidden<Elu>(net, layer, member, target, rows, z, saved, inverse_std); break;
      default: finish_hidden<Gelu>(net, layer, member, target, rows, z, saved, inverse_std);
    }
  }
}

// Gradient of a hidden layer's output -> of its product, in place; adds up the gradients of bias,
// scale and shift where they are wanted.
template <class Act>
static void through_hidden(const Network &net, const Layer &layer, int member, int rows,
                           const float *hidden, const float *saved, const float *inverse_std,
                           bool trained, float *gradient) {
  const int width = layer.outputs;
  float *__restrict of_bias = trained ? gradient_part(layer.bias, member, net.members) : nullptr;
  if (!net.layer_norm) {
    const int64_t entries = static_cast<int64_t>(rows) * width;
    float *__restrict g = gradient;
    const float *__restrict h = hidden;
    const float *__restrict y = Act::keeps_input ? saved : hidden;
#pragma omp simd
    for (int64_t i = 0; i < entries; i++) g[i] *= Act::slope(y[i], h[i]);
    if (trained) add_rows(rows, width, one_of, g, of_bias);
    return;
  }
  const float *__restrict scale = part(layer.scale, member, net.members, false);
  const float *__restrict shift = part(layer.shift, member, net.members, false);
  float *__restrict of_scale = trained ? gradient_part(layer.scale, member, net.members) : nullptr;
  float *__restrict of_shift = trained ? gradient_part(layer.shift, member, net.members) : nullptr;
  for (int r = 0; r < rows; r++) {
    const int64_t at = static_cast<int64_t>(r) * width;
    float *__restrict g = gradient + at;
    const float *__restrict h = hidden + at;
    const float *__restrict normal = saved + at;
    if (trained) {
#pragma omp simd
      for (int j = 0; j < width; j++) {
        g[j] *= Act::slope(normal[j] * scale[j] + shift[j], h[j]);
        of_scale[j] += g[j] * normal[j];
        of_shift[j] += g[j];
      }
    } else {
#pragma omp simd
      for (int j = 0; j < width; j++) g[j] *= Act::slope(normal[j] * scale[j] + shift[j], h[j]);
    }
    float sum = 0, along = 0;
#pragma omp simd reduction(+ : sum, along)
    for (int j = 0; j < width; j++) {
      g[j] *= scale[j];
      sum += g[j];
      along += g[j] * normal[j];
    }
    const float mean = sum / width, slant = along / width, inverse = inverse_std[r];
#pragma omp simd
    for (int j = 0; j < width; j++) g[j] = inverse * (g[j] - mean - normal[j] * slant);
    if (trained) {
#pragma omp simd
      for (int j = 0; j < width; j++) of_bias[j] += g[j];
    }
  }
}

// From the gradient of the output, (rows, outputs), to those of weights (added up, if `trained`)
// and of `count` columns of the input from `first` on (if `of_input`).
static void backward(const Network &net, int member, int rows, const Pass &pass,
                     const float *of_output, bool trained, float *of_input, int first, int count,
                     float *scratch_a, float *scratch_b) {
  Finish added;
  added.add = true;
  const float *g = of_output;
  for (int l = net.depth - 1; l >= 0; l--) {
    const Layer &layer = net.layers[l];
    const float *x = l ? pass.hidden[l - 1] : pass.input;
    const float *weight = part(layer.weight, member, net.members, false);
    const int inputs = layer.inputs, outputs = layer.outputs;
    const Precision precision = precision_of(net, l);
    if (trained) {
      float *of_weight = gradient_part(layer.weight, member, net.members);
      if (l + 1 == net.depth)
        add_rows(rows, outputs, one_of, g, gradient_part(layer.bias, member, net.members));
      if (outputs == 1)
        add_rows(rows, inputs, [g](int r) { return g[r]; }, x, of_weight);
      else if (net.outputs_first)
        product(precision, true, false, outputs, inputs, rows, g, outputs, x, inputs, of_weight,
                inputs, added);
      else
        product(precision, true, false, inputs, outputs, rows, x, inputs, g, outputs, of_weight,
                outputs, added);
    }
    const int from = l ? 0 : first, width = l ? inputs : count;
    if (l == 0 && !of_input) return;
    float *out = l ? (g == scratch_a ? scratch_b : scratch_a) : of_input;
    if (outputs == 1)
      for (int r = 0; r < rows; r++) {
        float *__restrict row = out + static_cast<int64_t>(r) * width;
        const float slope = g[r];
#pragma omp simd
        for (int j = 0; j < width; j++) row[j] = slope * weight[from + j];
      }
    else if (net.outputs_first)
      product(precision, false, false, rows, width, outputs, g, outputs, weight + from, inputs, out,
              width);
    else
      product(precision, false, true, rows, width, outputs, g, outputs,
              weight + static_cast<int64_t>(from) * outputs, outputs, out, width);
    if (l == 0) return;
    const Layer &below = net.layers[l - 1];
    const float *h = pass.hidden[l - 1], *saved = pass.saved[l - 1], *inv = pass.inverse_std[l - 1];
    switch (net.activation) {
      case kRelu: through_hidden<Relu>(net, below, member, rows, h, saved, inv, trained, out); break;
      case kTanh: through_hidden<Tanh>(net, below, member, rows, h, saved, inv, trained, out); break;
      case kSilu: through_hidden<Silu>(net, below, member, rows, h, saved, inv, trained, out); break;
      case kElu: through_hidden<Elu>(net, below, member, rows, h, saved, inv, trained, out); break;
      default: through_hidden<Gelu>(net, below, member, rows, h, saved, inv, trained, out);
    }
    g = out;
  }
}

// Normalised observations into the first columns of rows that are `stride` wide.
static void put_obs(const Network &net, int rows, const float *obs, int stride, float *out) {
  const int size = net.obs_size;
  const float *__restrict mean = net.obs_mean, *__restrict scale = net.obs_scale;
  for (int r = 0; r < rows; r++) {
    const float *__restrict from = obs + static_cast<int64_t>(r) * size;
    float *__restrict to = out + static_cast<int64_t>(r) * stride;
    if (!mean) {
      std::memcpy(to, from, sizeof(float) * size);
      continue;
    }
    const float clip = net.obs_clip;
#pragma omp simd
    for (int j = 0; j < size; j++) {
      float x = (from[j] - mean[j]) * scale[j];
      x = x > clip ? clip : x;
      to[j] = x < -clip ? -clip : x;
    }
  }
}

static void put_actions(int rows, int action_size, const float *action, int first, int stride,
                        float *out) {
  for (int r = 0; r < rows; r++)
    std::memcpy(out + static_cast<int64_t>(r) * stride + first,
                action + static_cast<int64_t>(r) * action_size, sizeof(float) * action_size);
}

// ---------------------------------------------------------------------------------------------
// Optimiser
// ---------------------------------------------------------------------------------------------

template <class Do>
static void for_parameters(Network &net, Do apply) {
  for (int l = 0; l < net.depth; l++) {
    apply(net.layers[l].weight);
    apply(net.layers[l].bias);
    if (net.layer_norm && l + 1 < net.depth) {
      apply(net.layers[l].scale);
      apply(net.layers[l].shift);
    }
  }
}

static void clear_gradients(Network &net) {
  for_parameters(net, [](Parameter &p) { std::memset(p.gradient, 0, sizeof(float) * p.size); });
}

// Adam or AdamW (Kingma & Ba 2015; Loshchilov & Hutter 2019) as torch's fused kernel, with gradients
// times `shrink`, and then the move of the target by a share `tau`.
static void adam_step(Parameter &p, const Adam &adam, double count, float shrink, float tau) {
  const float beta2 = adam.beta2, epsilon = adam.epsilon;
  const float step = adam.rate / (1 - std::pow(adam.beta1, count));
  const float root = std::sqrt(1 - std::pow(adam.beta2, count));
  const float left1 = 1 - adam.beta1, left2 = 1 - adam.beta2;
  float *__restrict value = p.value, *__restrict mean = p.mean, *__restrict square = p.square;
  const float *__restrict gradient = p.gradient;
  if (adam.decay > 0) {  // a product of its own, rounded as torch's
    const float keep = 1 - adam.rate * adam.decay;
#pragma omp simd
    for (int64_t i = 0; i < p.size; i++) value[i] *= keep;
  }
#pragma omp simd
  for (int64_t i = 0; i < p.size; i++) {
    const float g = gradient[i] * shrink;
    const float m = mean[i] + left1 * (g - mean[i]);
    const float s = beta2 * square[i] + left2 * g * g;
    mean[i] = m;
    square[i] = s;
    value[i] -= step * m / (std::sqrt(s) / root + epsilon);
  }
  if (!p.target || tau == 0) return;
  float *__restrict target = p.target;
#pragma omp simd
  for (int64_t i = 0; i < p.size; i++) target[i] += tau * (value[i] - target[i]);
}

static void move_target(Network &net, float tau) {
  for_parameters(net, [tau](Parameter &p) {
    float *__restrict target = p.target;
    const float *__restrict value = p.value;
#pragma omp simd
    for (int64_t i = 0; i < p.size; i++) target[i] += tau * (value[i] - target[i]);
  });
}

// Factor that brings all gradients together down to the largest norm (torch's clip_grad_norm_).
static float clip_factor(Network &net, double max_norm) {
  if (max_norm <= 0) return 1;
  double total = 0;
  for_parameters(net, [&total](Parameter &p) {
    float sum = 0;
    const float *__restrict g = p.gradient;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < p.size; i++) sum += g[i] * g[i];
    total += sum;
  });
  const double factor = max_norm / (std::sqrt(total) + 1e-6);
  return factor > 1 ? 1 : factor;
}

static void descend(Network &net, Adam &adam, float tau) {
  const float shrink = clip_factor(net, adam.max_norm);
  for (int i = 0; i < adam.count; i++) adam.steps[i] += 1;
  const double count = adam.steps[0];
  for_parameters(net, [&](Parameter &p) { adam_step(p, adam, count, shrink, tau); });
}

// ---------------------------------------------------------------------------------------------
// Values
// ---------------------------------------------------------------------------------------------

static float softmax_mean(int atoms, const float *logits, float low, float spacing,
                          float *probability) {
  float largest = logits[0];
#pragma omp simd reduction(max : largest)
  for (int k = 0; k < atoms; k++) largest = logits[k] > largest ? logits[k] : largest;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int k = 0; k < atoms; k++) {
    probability[k] = exp_of(logits[k] - largest);
    sum += probability[k];
  }
  const float inverse = 1 / sum;
  float mean = 0;
#pragma omp simd reduction(+ : mean)
  for (int k = 0; k < atoms; k++) {
    probability[k] *= inverse;
    mean += probability[k] * (low + spacing * k);
  }
  return mean;
}

static int width_of(const Critics &critics) { return std::max(1, critics.atoms); }

// Expected values of a member, (rows,), and its probabilities, (rows, K), of categories.
static void expect(const Critics &critics, int rows, const float *output, float *value,
                   float *probability) {
  if (!critics.atoms) {
    std::memcpy(value, output, sizeof(float) * rows);
    return;
  }
  const int atoms = critics.atoms;
  for (int r = 0; r < rows; r++)
    value[r] = softmax_mean(atoms, output + static_cast<int64_t>(r) * atoms, critics.low,
                            critics.spacing, probability + static_cast<int64_t>(r) * atoms);
}

// Distribution of shift + discount * Z on the atoms (Bellemare et al. 2017, eq. 7).
static void project(const Critics &critics, int rows, const float *probability, const float *shift,
                    const float *discount, float *out) {
  const int atoms = critics.atoms;
  std::memset(out, 0, sizeof(float) * rows * atoms);
  for (int r = 0; r < rows; r++) {
    const float *from = probability + static_cast<int64_t>(r) * atoms;
    float *to = out + static_cast<int64_t>(r) * atoms;
    const float first = (shift[r] - (1 - discount[r]) * critics.low) / critics.spacing;
    for (int k = 0; k < atoms; k++) {
      float place = first + discount[r] * k;
      place = place > atoms - 1 ? atoms - 1 : place;
      place = place < 0 ? 0 : place;
      int lower = place >= 0 ? static_cast<int>(place) : 0;  // a NaN stays in the shares
      lower = lower > atoms - 2 ? atoms - 2 : lower;
      const float upper_share = from[k] * (place - lower);
      to[lower] += from[k] - upper_share;
      to[lower + 1] += upper_share;
    }
  }
}

// Buffers of a thread, for one block of rows.
struct MemberWork {
  Pass pass;
  float *of_output;  // (rows, W)
  float *of_value;  // (rows,)
  int32_t *chosen;  // rows whose smallest value is the member's
  float *of_chosen;  // (rows, A)
  float *scratch_a, *scratch_b;  // (rows, widest)
};

struct CriticSums {
  double loss = 0, value = 0;
};

// Buffers of the critics' part of an update, for one block of rows.
struct CriticWork {
  int rows;  // of a full block
  std::vector<MemberWork> places;  // of each thread
  std::vector<CriticSums> sums;  // of each member
  float *input;  // (rows, obs + action)
  float *values, *errors;  // (E, rows), or more where more members are drawn
  float *probabilities;  // as many, (rows, K)
  float *best;  // (rows,)
  float *mixed;  // (rows, K): what the target is projected from
  float *target;  // (rows, W), or (E, rows, W) with `own`
  float *shift;  // (rows,)
  float *value_of(int member) const { return values + static_cast<int64_t>(member) * rows; }
  float *error_of(int member) const { return errors + static_cast<int64_t>(member) * rows; }
  float *probability_of(int member, int atoms) const {
    return probabilities + static_cast<int64_t>(member) * rows * atoms;
  }
};

static CriticWork make_critic_work(const Critics &critics, int rows, int threads, Arena &arena) {
  const Network &net = critics.network;
  const int64_t width = width_of(critics), size = static_cast<int64_t>(rows) * width;
  const int targets = std::max(net.members, critics.drawn_count);  // drawn with replacement
  const int64_t values = static_cast<int64_t>(targets) * rows;
  const int64_t scratch = static_cast<int64_t>(rows) * widest(net);
  CriticWork work = {};
  work.rows = rows;
  work.sums.resize(net.members);
  if (has_threads(net) || rows * weights_of(net) < kWorthAThread) threads = 1;
  for (int place = 0; place < std::max(1, std::min(threads, net.members)); place++) {
    MemberWork of_place = {make_pass(net, rows, arena)};
    of_place.of_output = arena.take(size);
    of_place.of_value = arena.take(rows);
    of_place.chosen = reinterpret_cast<int32_t *>(arena.take(rows));
    of_place.of_chosen = arena.take(static_cast<int64_t>(rows) * (inputs_of(net) - net.obs_size));
    of_place.scratch_a = arena.take(scratch);
    of_place.scratch_b = arena.take(scratch);
    work.places.push_back(of_place);
  }
  work.input = arena.take(static_cast<int64_t>(rows) * inputs_of(net));
  work.values = arena.take(values);
  work.errors = arena.take(values);
  work.probabilities = arena.take(values * critics.atoms);
  work.best = arena.take(rows);
  work.mixed = arena.take(size);
  work.target = arena.take(critics.rule == kEach ? targets * size : size);
  work.shift = arena.take(rows);
  return work;
}

// Target of a block of rows, from the input that `work.input` holds.
static void make_target(const Critics &critics, int rows, const float *reward,
                        const float *discount, const float *bonus, CriticWork &work) {
  const Network &net = critics.network;
  const int count = critics.drawn ? critics.drawn_count : net.members;
  const int64_t width = width_of(critics), size = static_cast<int64_t>(rows) * width;
  team->each(count, static_cast<int>(work.places.size()), [&](int i, int place) {
    Pass &pass = work.places[place].pass;
    forward(net, critics.drawn ? static_cast<int>(critics.drawn[i]) : i, true, rows, work.input, pass);
    expect(critics, rows, pass.output, work.value_of(i), work.probability_of(i, critics.atoms));
  });
  for (int i = 0; i < count; i++) {
    const float *values = work.value_of(i);
    const float *of_member = critics.atoms ? work.probability_of(i, critics.atoms) : values;
    if (critics.rule == kEach) {
      std::memcpy(work.target + i * size, of_member, sizeof(float) * size);
    } else if (i == 0) {
      std::memcpy(work.best, values, sizeof(float) * rows);
      std::memcpy(work.mixed, of_member, sizeof(float) * size);
    } else if (critics.rule == kMean) {
      for (int64_t j = 0; j < size; j++) work.mixed[j] += of_member[j];
    } else {
      for (int r = 0; r < rows; r++) {
        const float value = values[r];
        if (!(value < work.best[r]) && value == value) continue;  // a NaN wins, as in torch
        work.best[r] = value;
        std::memcpy(work.mixed + r * width, of_member + r * width, sizeof(float) * width);
      }
    }
  }
  if (critics.rule == kMean)
    for (int64_t j = 0; j < size; j++) work.mixed[j] /= count;
  const int targets = critics.rule == kEach ? count : 1;
  for (int i = 0; i < targets; i++) {
    float *target = work.target + i * size;
    if (!critics.atoms) {
      const float *value = critics.rule == kEach ? target : work.mixed;
      for (int r = 0; r < rows; r++) target[r] = reward[r] + discount[r] * (value[r] + bonus[r]);
      continue;
    }
    for (int r = 0; r < rows; r++) work.shift[r] = reward[r] + discount[r] * bonus[r];
    if (critics.rule == kEach) std::memcpy(work.mixed, target, sizeof(float) * size);
    project(critics, rows, work.mixed, work.shift, discount, target);
  }
}

// Loss, error and gradient of a member's outputs, (rows, W), which a thread has in its pass.
static void critic_loss(const Critics &critics, int member, int rows, int batch_rows,
                        const float *weight, CriticWork &work, MemberWork &own) {
  const int width = width_of(critics), members = critics.network.members;
  float *__restrict error = work.error_of(member), *__restrict values = work.value_of(member);
  const float *probability = work.probability_of(member, critics.atoms), *output = own.pass.output;
  CriticSums &sums = work.sums[member];
  const float *target = work.target;
  if (critics.rule == kEach) target += static_cast<int64_t>(member) * rows * width;
  if (!critics.atoms) {
    for (int r = 0; r < rows; r++) {
      const float share = weight[r] / batch_rows, q = output[r], gap = q - target[r];
      sums.loss += share * gap * gap;
      sums.value += q;
      own.of_output[r] = 2 * share * gap;
      error[r] = std::fabs(gap) / members;
    }
    return;
  }
  expect(critics, rows, output, values, work.probability_of(member, critics.atoms));
  for (int r = 0; r < rows; r++) {
    const float *__restrict t = target + static_cast<int64_t>(r) * width;
    const float *__restrict p = probability + static_cast<int64_t>(r) * width;
    const float *__restrict logits = output + static_cast<int64_t>(r) * width;
    float *__restrict g = own.of_output + static_cast<int64_t>(r) * width;
    const float share = weight[r] / batch_rows;
    float largest = logits[0], mass = 0;
#pragma omp simd reduction(max : largest)
    for (int k = 0; k < width; k++) largest = logits[k] > largest ? logits[k] : largest;
    float sum = 0, along = 0, entropy = 0;
#pragma omp simd reduction(+ : mass, sum, along, entropy)
    for (int k = 0; k < width; k++) {
      const float from_largest = logits[k] - largest;
      mass += t[k];
      sum += exp_of(from_largest);
      along += t[k] * from_largest;
      const float information = t[k] * log_of(t[k] > 1e-37f ? t[k] : 1e-37f);
      entropy -= information;
    }
    const float cross = mass * std::log(sum) - along;
#pragma omp simd
    for (int k = 0; k < width; k++) g[k] = share * (mass * p[k] - t[k]);
    const float surprise = cross - entropy;
    sums.loss += share * cross;
    sums.value += values[r];
    error[r] = (surprise < 0 ? 0 : surprise) / members;
  }
}

// Gradients of all members over a block, whose targets are made.
static void learn_critics(const Critics &critics, int rows, int batch_rows, const float *weight,
                          CriticWork &work, float *error) {
  const Network &net = critics.network;
  team->each(net.members, static_cast<int>(work.places.size()), [&](int member, int place) {
    MemberWork &own = work.places[place];
    forward(net, member, false, rows, work.input, own.pass);
    critic_loss(critics, member, rows, batch_rows, weight, work, own);
    backward(net, member, rows, own.pass, own.of_output, true, nullptr, 0, 0, own.scratch_a,
             own.scratch_b);
  });
  for (int r = 0; r < rows; r++) error[r] = 0;
  for (int member = 0; member < net.members; member++)
    for (int r = 0; r < rows; r++) error[r] += work.error_of(member)[r];
}

// Metrics of the critics: loss and mean value.
static void sum_up(const Critics &critics, int rows, const CriticWork &work, float *metrics) {
  CriticSums all;
  for (const CriticSums &sums : work.sums) {
    all.loss += sums.loss;
    all.value += sums.value;
  }
  metrics[0] = all.loss;
  metrics[1] = all.value / (static_cast<double>(rows) * critics.network.members);
}

// Buffers of the actor's objective, for one block of rows.
struct ObjectiveWork {
  CriticWork *critic;
  std::vector<Pass> passes;  // of each member, where the smallest value is only known after all
  float *best;  // (rows,)
  float *of_action;  // (rows, A)
  float *of_members;  // (E, rows, A)
};

static bool takes_smallest(const Critics &critics) {
  return critics.objective == kSmallest && critics.network.members > 1;
}

static ObjectiveWork make_objective_work(const Critics &critics, int rows, int action_size,
                                         CriticWork *critic, Arena &arena) {
  ObjectiveWork work = {};
  const int members = critics.network.members;
  const int64_t actions = static_cast<int64_t>(rows) * action_size;
  work.critic = critic;
  if (takes_smallest(critics))
    for (int e = 0; e < members; e++) work.passes.push_back(make_pass(critics.network, rows, arena));
  work.best = arena.take(rows);
  work.of_action = arena.take(actions);
  work.of_members = arena.take(members * actions);
  return work;
}

// Gradient of a member's outputs from that of its value: row i from `rows_at[i]`, or row i.
static void of_outputs(const Critics &critics, int rows, const int32_t *rows_at,
                       const float *of_value, const float *value, const float *probability,
                       float *of_output) {
  const int atoms = critics.atoms;
  for (int i = 0; i < rows; i++) {
    if (!atoms) {
      of_output[i] = of_value[i];
      continue;
    }
    const int64_t r = rows_at ? rows_at[i] : i;
    const float *__restrict p = probability + r * atoms;
    float *__restrict g = of_output + static_cast<int64_t>(i) * atoms;
    const float slope = of_value[i], mean = value[r];
#pragma omp simd
    for (int k = 0; k < atoms; k++)
      g[k] = slope * p[k] * (critics.low + critics.spacing * k - mean);
  }
}

// The rows of a pass that the backward pass needs, one after another.
static void gather_rows(const Network &net, const Pass &from, int rows, const int32_t *rows_at,
                        Pass &to) {
  const auto copy = [&](const float *source, float *target, int width) {
    if (!source) return;
    for (int i = 0; i < rows; i++)
      std::memcpy(target + static_cast<int64_t>(i) * width,
                  source + static_cast<int64_t>(rows_at[i]) * width, sizeof(float) * width);
  };
  for (int l = 0; l + 1 < net.depth; l++) {
    copy(from.hidden[l], to.hidden[l], net.layers[l].outputs);
    copy(from.saved[l], to.saved[l], net.layers[l].outputs);
    copy(from.inverse_std[l], to.inverse_std[l], 1);
  }
}

// Gradients of all members' values with respect to the actions, added up in order.
static void add_members(int members, int64_t actions, ObjectiveWork &work) {
  for (int e = 0; e < members; e++)
    for (int64_t i = 0; i < actions; i++) work.of_action[i] += work.of_members[e * actions + i];
}

// Smallest values, (rows,) in `best`: each row's gradient passes through that member alone.
static void ascend_smallest(const Critics &critics, int rows, int batch_rows, int action_size,
                            const float *weight, ObjectiveWork &work) {
  const Network &net = critics.network;
  CriticWork &critic = *work.critic;
  const int members = net.members, threads = static_cast<int>(critic.places.size());
  team->each(members, threads, [&](int e, int) {
    forward(net, e, false, rows, critic.input, work.passes[e]);
    expect(critics, rows, work.passes[e].output, critic.value_of(e),
           critic.probability_of(e, critics.atoms));
  });
  for (int e = 0; e < members; e++) {
    const float *value = critic.value_of(e);
    for (int r = 0; r < rows; r++) {
      const bool smaller = e == 0 || value[r] < work.best[r] || value[r] != value[r];
      work.best[r] = smaller ? value[r] : work.best[r];
    }
  }
  const int64_t actions = static_cast<int64_t>(rows) * action_size;
  team->each(members, threads, [&](int e, int place) {
    MemberWork &own = critic.places[place];
    const float *value = critic.value_of(e);
    float *of_member = work.of_members + e * actions;
    int count = 0;
    for (int r = 0; r < rows; r++) {
      if (value[r] > work.best[r]) continue;  // false for a NaN
      int equal = 0;  // torch shares the gradient among equal values
      for (int other = 0; other < members; other++)
        equal += !(critic.value_of(other)[r] > work.best[r]);
      own.chosen[count] = r;
      own.of_value[count++] = -weight[r] / batch_rows / equal;
    }
    std::memset(of_member, 0, sizeof(float) * actions);
    if (count == 0) return;
    gather_rows(net, work.passes[e], count, own.chosen, own.pass);
    of_outputs(critics, count, own.chosen, own.of_value, value,
               critic.probability_of(e, critics.atoms), own.of_output);
    backward(net, e, count, own.pass, own.of_output, false, own.of_chosen, net.obs_size,
             action_size, own.scratch_a, own.scratch_b);
    for (int i = 0; i < count; i++)
      std::memcpy(of_member + own.chosen[i] * action_size, own.of_chosen + i * action_size,
                  sizeof(float) * action_size);
  });
  add_members(members, actions, work);
}

// Mean values of the members that count, (rows,) in `best`.
static void ascend_mean(const Critics &critics, int rows, int batch_rows, int action_size,
                        const float *weight, ObjectiveWork &work) {
  const Network &net = critics.network;
  CriticWork &critic = *work.critic;
  const int members = critics.objective == kFirst ? 1 : net.members;
  const int64_t actions = static_cast<int64_t>(rows) * action_size;
  team->each(members, static_cast<int>(critic.places.size()), [&](int e, int place) {
    MemberWork &own = critic.places[place];
    float *value = critic.value_of(e), *probability = critic.probability_of(e, critics.atoms);
    forward(net, e, false, rows, critic.input, own.pass);
    expect(critics, rows, own.pass.output, value, probability);
    for (int r = 0; r < rows; r++) own.of_value[r] = -weight[r] / batch_rows / members;
    of_outputs(critics, rows, nullptr, own.of_value, value, probability, own.of_output);
    backward(net, e, rows, own.pass, own.of_output, false, work.of_members + e * actions,
             net.obs_size, action_size, own.scratch_a, own.scratch_b);
  });
  for (int r = 0; r < rows; r++) work.best[r] = 0;
  for (int e = 0; e < members; e++)
    for (int r = 0; r < rows; r++) work.best[r] += critic.value_of(e)[r] / members;
  add_members(members, actions, work);
}

// Values that the actor ascends, (rows,) in `best`, and the gradient of the loss
// -sum(weight / batch_rows * value) with respect to the actions, in `of_action`.
static void actor_objective(const Critics &critics, int rows, int batch_rows, int action_size,
                            const float *weight, ObjectiveWork &work) {
  std::memset(work.of_action, 0, sizeof(float) * rows * action_size);
  if (takes_smallest(critics))
    ascend_smallest(critics, rows, batch_rows, action_size, weight, work);
  else
    ascend_mean(critics, rows, batch_rows, action_size, weight, work);
}

// ---------------------------------------------------------------------------------------------
// Soft actor-critic
// ---------------------------------------------------------------------------------------------

constexpr int kBlock = 512;  // rows whose activations stay in the second cache

struct ActorWork {
  Pass pass;
  float *input;  // (rows, obs)
  float *action, *mean, *log_std, *std;  // (rows, A)
  float *slope;  // (rows, A), of the log standard deviation's bound
  float *log_prob, *bonus;  // (rows,)
  float *of_output;  // (rows, 2 A)
  float *scratch_a, *scratch_b;
};

static ActorWork make_actor_work(const Network &net, int rows, int action_size, Arena &arena) {
  ActorWork work = {};
  const int64_t actions = static_cast<int64_t>(rows) * action_size;
  work.pass = make_pass(net, rows, arena);
  work.input = arena.take(static_cast<int64_t>(rows) * net.obs_size);
  work.action = arena.take(actions);
  work.mean = arena.take(actions);
  work.log_std = arena.take(actions);
  work.std = arena.take(actions);
  work.slope = arena.take(actions);
  work.log_prob = arena.take(rows);
  work.bonus = arena.take(rows);
  work.of_output = arena.take(static_cast<int64_t>(rows) * outputs_of(net));
  work.scratch_a = arena.take(static_cast<int64_t>(rows) * widest(net));
  work.scratch_b = arena.take(static_cast<int64_t>(rows) * widest(net));
  return work;
}

// Actions tanh(mean + noise * std) and their log-probabilities. Loops run over all entries of the
// block, not over the few of one row, so that they fill the vectors.
static void sample(const SacUpdate &u, int rows, const float *obs, const float *noise,
                   ActorWork &work) {
  const int size = u.action_size, entries = rows * size;
  const float low = u.log_std_min, high = u.log_std_max, half = 0.5f * (high - low);
  const float constant = 0.5f * std::log(2 * M_PI) + 2 * std::log(2.0);
  put_obs(u.actor, rows, obs, u.actor.obs_size, work.input);
  forward(u.actor, 0, false, rows, work.input, work.pass);
  float *__restrict mean = work.mean, *__restrict raw = work.log_std;
  for (int r = 0; r < rows; r++) {
    const float *output = work.pass.output + static_cast<int64_t>(r) * 2 * size;
    std::memcpy(mean + r * size, output, sizeof(float) * size);
    std::memcpy(raw + r * size, output + size, sizeof(float) * size);
  }
  float *__restrict action = work.action, *__restrict deviation = work.std;
  float *__restrict slope = work.slope, *__restrict parts = mean;
  if (u.log_std_bound == kSmooth) {
#pragma omp simd
    for (int i = 0; i < entries; i++) {
      const float t = tanh_of(raw[i]);
      raw[i] = low + half * (t + 1);
      slope[i] = half * (1 - t * t);
    }
  } else {
#pragma omp simd
    for (int i = 0; i < entries; i++) {
      const float x = raw[i];
      slope[i] = x <= low || x >= high ? 0 : 1;
      const float below = x > high ? high : x;
      raw[i] = below < low ? low : below;
    }
  }
#pragma omp simd
  for (int i = 0; i < entries; i++) {
    const float n = noise[i];
    deviation[i] = exp_of(raw[i]);
    const float x = mean[i] + n * deviation[i];
    action[i] = tanh_of(x);
    // log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x))
    parts[i] = 2 * (x + softplus_of(-2 * x)) - raw[i] - 0.5f * n * n;
  }
  for (int r = 0; r < rows; r++) {
    float sum = 0;
    for (int j = 0; j < size; j++) sum += parts[r * size + j];
    work.log_prob[r] = sum - constant * size;
  }
}

static float alpha_of(const Temperature &t) {
  const float x = *t.parameter.value;
  return t.loss == kSoftplus ? (x > 20 ? x : std::log1p(std::exp(x))) : std::exp(x);
}

// Raises the temperature where entropy falls short of its target.
static void temperature_step(Temperature &t, int rows, const float *log_prob, const float *weight) {
  if (t.loss == kFixed) return;
  double surplus = 0;
  for (int r = 0; r < rows; r++) surplus += weight[r] * (-log_prob[r] - t.target_entropy);
  const float x = *t.parameter.value;
  float slope = 1;
  if (t.loss == kAlpha) slope = std::exp(x);
  if (t.loss == kSoftplus) slope = 1 / (1 + std::exp(-x));
  *t.parameter.gradient = slope * static_cast<float>(surplus / rows);
  t.adam.steps[0] += 1;
  adam_step(t.parameter, t.adam, t.adam.steps[0], 1, 0);
}

struct SacWork {
  ActorWork actor;
  CriticWork critic;
  ObjectiveWork objective;
  float *log_prob;  // of the actor's rows
};

static int block_of(int rows) { return std::min(rows, kBlock); }

static SacWork make_sac_work(const SacUpdate &u, Arena &arena) {
  const int rows = block_of(std::max(u.batch.rows, u.actor_rows.rows));
  SacWork work;
  work.actor = make_actor_work(u.actor, rows, u.action_size, arena);
  work.critic = make_critic_work(u.critics, rows, u.threads, arena);
  work.objective = make_objective_work(u.critics, rows, u.action_size, nullptr, arena);
  work.log_prob = arena.take(u.actor_rows.rows);
  return work;
}

extern "C" int64_t sac_workspace(const SacUpdate *u) {
  Arena arena(nullptr);
  make_sac_work(*u, arena);
  return arena.used;
}

static void sac_critics(SacUpdate &u, SacWork &work, float alpha) {
  const Batch &b = u.batch;
  Network &net = u.critics.network;
  const int size = u.action_size, columns = inputs_of(net);
  clear_gradients(net);
  for (int first = 0; first < b.rows; first += kBlock) {
    const int rows = std::min(kBlock, b.rows - first);
    const int64_t at = first;
    ActorWork &actor = work.actor;
    CriticWork &critic = work.critic;
    sample(u, rows, b.next_actor_obs + at * u.actor.obs_size, u.next_noise + at * size, actor);
    std::memcpy(u.next_log_prob + at, actor.log_prob, sizeof(float) * rows);
    for (int r = 0; r < rows; r++)
      actor.bonus[r] = u.entropy_in_target ? -alpha * actor.log_prob[r] : 0;
    put_obs(net, rows, b.next_critic_obs + at * net.obs_size, columns, critic.input);
    put_actions(rows, size, actor.action, net.obs_size, columns, critic.input);
    make_target(u.critics, rows, b.reward + at, b.discount + at, actor.bonus, critic);
    put_obs(net, rows, b.critic_obs + at * net.obs_size, columns, critic.input);
    put_actions(rows, size, b.action + at * size, net.obs_size, columns, critic.input);
    learn_critics(u.critics, rows, b.rows, b.weight + at, critic, u.error + at);
  }
  descend(net, u.critics.adam, u.critics.tau);
  sum_up(u.critics, b.rows, work.critic, u.metrics);
}

static void sac_actor(SacUpdate &u, SacWork &work, float alpha) {
  const ActorRows &b = u.actor_rows;
  const Network &net = u.critics.network;
  const int size = u.action_size, columns = inputs_of(net);
  double loss = 0, log_probs = 0;
  clear_gradients(u.actor);
  for (int first = 0; first < b.rows; first += kBlock) {
    const int rows = std::min(kBlock, b.rows - first);
    const int64_t at = first;
    ActorWork &actor = work.actor;
    CriticWork &critic = work.critic;
    const float *noise = b.noise + at * size, *weight = b.weight + at;
    sample(u, rows, b.actor_obs + at * u.actor.obs_size, noise, actor);
    put_obs(net, rows, b.critic_obs + at * net.obs_size, columns, critic.input);
    put_actions(rows, size, actor.action, net.obs_size, columns, critic.input);
    actor_objective(u.critics, rows, b.rows, size, weight, work.objective);
    for (int r = 0; r < rows; r++) {
      const float share = weight[r] / b.rows, of_log_prob = alpha * share;
      loss += share * (alpha * actor.log_prob[r] - work.objective.best[r]);
      log_probs += actor.log_prob[r];
      const int64_t from = static_cast<int64_t>(r) * size;
      float *of_mean = actor.of_output + 2 * from, *of_raw = of_mean + size;
      for (int j = 0; j < size; j++) {
        // d log_prob / dx = 2 tanh(x): the farther out, the denser lie the actions.
        const float action = actor.action[from + j], std = actor.std[from + j];
        const float of_x =
            work.objective.of_action[from + j] * (1 - action * action) + 2 * of_log_prob * action;
        of_mean[j] = of_x;
        of_raw[j] = (of_x * noise[from + j] * std - of_log_prob) * actor.slope[from + j];
      }
    }
    std::memcpy(work.log_prob + at, actor.log_prob, sizeof(float) * rows);
    backward(u.actor, 0, rows, actor.pass, actor.of_output, true, nullptr, 0, 0, actor.scratch_a,
             actor.scratch_b);
  }
  descend(u.actor, u.actor_adam, 0);
  u.metrics[2] = loss;
  u.metrics[3] = -log_probs / b.rows;
  u.metrics[4] = alpha;
}

// Critics, their targets, and the temperature where it steps with them.
extern "C" void sac_update_critics(SacUpdate *update) {
  const TinyIsZero tiny;
  SacUpdate &u = *update;
  Arena arena(u.workspace);
  SacWork work = make_sac_work(u, arena);
  sac_critics(u, work, alpha_of(u.temperature));
  if (u.update_temperature)
    temperature_step(u.temperature, u.batch.rows, u.next_log_prob, u.batch.weight);
}

// Actor, and the temperature where it steps with it.
extern "C" void sac_update_actor(SacUpdate *update) {
  const TinyIsZero tiny;
  SacUpdate &u = *update;
  Arena arena(u.workspace);
  SacWork work = make_sac_work(u, arena);
  work.objective.critic = &work.critic;
  sac_actor(u, work, alpha_of(u.temperature));
  const ActorRows &rows = u.actor_rows;
  if (!u.temperature_with_critics)
    temperature_step(u.temperature, rows.rows,
                     u.entropy_at_next ? rows.next_log_prob : work.log_prob, rows.weight);
}

// ---------------------------------------------------------------------------------------------
// TD3
// ---------------------------------------------------------------------------------------------

struct Td3Work {
  ActorWork actor;
  CriticWork critic;
  ObjectiveWork objective;
};

static Td3Work make_td3_work(const Td3Update &u, Arena &arena) {
  const int rows = block_of(u.batch.rows);
  Td3Work work;
  work.actor = make_actor_work(u.actor, rows, u.action_size, arena);
  work.critic = make_critic_work(u.critics, rows, u.threads, arena);
  work.objective = make_objective_work(u.critics, rows, u.action_size, nullptr, arena);
  return work;
}

extern "C" int64_t td3_workspace(const Td3Update *u) {
  Arena arena(nullptr);
  make_td3_work(*u, arena);
  return arena.used;
}

// Actions tanh(network), of the moving copy if `target`.
static void act(const Td3Update &u, int rows, const float *obs, bool target, ActorWork &work) {
  put_obs(u.actor, rows, obs, u.actor.obs_size, work.input);
  forward(u.actor, 0, target, rows, work.input, work.pass);
  const int64_t actions = static_cast<int64_t>(rows) * u.action_size;
#pragma omp simd
  for (int64_t j = 0; j < actions; j++) work.action[j] = tanh_of(work.pass.output[j]);
}

static void td3_critics(Td3Update &u, Td3Work &work) {
  const Batch &b = u.batch;
  Network &net = u.critics.network;
  const int size = u.action_size, columns = inputs_of(net);
  clear_gradients(net);
  for (int first = 0; first < b.rows; first += kBlock) {
    const int rows = std::min(kBlock, b.rows - first);
    const int64_t at = first;
    ActorWork &actor = work.actor;
    CriticWork &critic = work.critic;
    act(u, rows, b.next_actor_obs + at * u.actor.obs_size, u.target_actor, actor);
    for (int64_t j = 0; j < static_cast<int64_t>(rows) * size; j++) {
      float next = actor.action[j] + u.next_noise[at * size + j];
      next = next > 1 ? 1 : next;
      actor.action[j] = next < -1 ? -1 : next;
    }
    for (int r = 0; r < rows; r++) actor.bonus[r] = 0;
    put_obs(net, rows, b.next_critic_obs + at * net.obs_size, columns, critic.input);
    put_actions(rows, size, actor.action, net.obs_size, columns, critic.input);
    make_target(u.critics, rows, b.reward + at, b.discount + at, actor.bonus, critic);
    put_obs(net, rows, b.critic_obs + at * net.obs_size, columns, critic.input);
    put_actions(rows, size, b.action + at * size, net.obs_size, columns, critic.input);
    learn_critics(u.critics, rows, b.rows, b.weight + at, critic, u.error + at);
  }
  descend(net, u.critics.adam, u.critics.tau);
  sum_up(u.critics, b.rows, work.critic, u.metrics);
}

static void td3_actor(Td3Update &u, Td3Work &work) {
  const Batch &b = u.batch;
  const Network &net = u.critics.network;
  const int size = u.action_size, columns = inputs_of(net);
  double loss = 0;
  clear_gradients(u.actor);
  for (int first = 0; first < b.rows; first += kBlock) {
    const int rows = std::min(kBlock, b.rows - first);
    const int64_t at = first;
    ActorWork &actor = work.actor;
    CriticWork &critic = work.critic;
    act(u, rows, b.actor_obs + at * u.actor.obs_size, false, actor);
    put_obs(net, rows, b.critic_obs + at * net.obs_size, columns, critic.input);
    put_actions(rows, size, actor.action, net.obs_size, columns, critic.input);
    actor_objective(u.critics, rows, b.rows, size, b.weight + at, work.objective);
    for (int r = 0; r < rows; r++) loss -= b.weight[at + r] / b.rows * work.objective.best[r];
    for (int64_t j = 0; j < static_cast<int64_t>(rows) * size; j++)
      actor.of_output[j] =
          work.objective.of_action[j] * (1 - actor.action[j] * actor.action[j]);
    backward(u.actor, 0, rows, actor.pass, actor.of_output, true, nullptr, 0, 0, actor.scratch_a,
             actor.scratch_b);
  }
  descend(u.actor, u.actor_adam, u.actor_tau);
  u.metrics[2] = loss;
}

// Critics and their targets.
extern "C" void td3_update_critics(Td3Update *update) {
  const TinyIsZero tiny;
  Td3Update &u = *update;
  Arena arena(u.workspace);
  Td3Work work = make_td3_work(u, arena);
  td3_critics(u, work);
}

// Actor and its target.
extern "C" void td3_update_actor(Td3Update *update) {
  const TinyIsZero tiny;
  Td3Update &u = *update;
  Arena arena(u.workspace);
  Td3Work work = make_td3_work(u, arena);
  work.objective.critic = &work.critic;
  td3_actor(u, work);
}

extern "C" void td3_move_target_actor(Td3Update *update) {
  move_target(update->actor, update->actor_tau);
}
