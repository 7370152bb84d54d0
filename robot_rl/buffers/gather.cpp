// A sample of a replay ring on the CPU: transitions of up to n steps out of packed rows, in one pass.
//
// The rules about ends and seams, and every operation on float32, are those of `Returns` in
// `returns.py`, in the same order: results are equal to the last bit, so that this file must be
// compiled without options that join or reorder operations. Rewards that are stored by terms are
// copied out, and valued by Python between the two functions.

#include <cstdint>
#include <cstring>

// Structures that Python hands in. `compiled_returns.py` declares the same ones.

struct Part {  // columns that are copied into a tensor of their own
  int64_t column, width;
  int64_t of_last;  // 1: of the last row of the sum, 0: of the first
  float *out;  // (count, width)
};

struct Ring {
  const float *rows;  // (capacity, width): steps of all envs, one after another
  int64_t width, num_envs, capacity;
  int64_t held;  // rows that are filled
  int64_t oldest;  // row of the oldest step
  int64_t terminated, truncated, valid;  // columns of flags
  int64_t reward, terms;  // column of the first term, and their number
  int64_t action, action_size;
};

struct Sample {
  int64_t count, n_step;
  float gamma;
  const int64_t *position;  // (count,) rows counted from the oldest one
  Part *parts;
  int64_t part_count;
  int64_t *index;  // (count,) rows of the ring
  float *discount, *weight;  // (count,)
  int64_t *steps;  // (count,) rows whose rewards count; of several steps alone
  float *terms;  // term j of row k of sample i lies at k * terms_step + i * terms_stride + j
  int64_t terms_step, terms_stride;
  float *chunk;  // (count, n_step, action_size), or null
  uint8_t *chunk_valid;  // (count, n_step)
};

constexpr int kAhead = 4;  // samples between fetching rows and reading them
constexpr int kSingleAhead = 8;  // the same of single steps, whose rows are read from end to end
constexpr int kLine = 16;  // floats of a cache line

// Compilers take a function that only fetches for one without effect, and drop calls of it.
#define INLINED static inline __attribute__((always_inline))

INLINED void fetch(const float *start, int64_t floats) {
  for (int64_t i = 0; i < floats; i += kLine) __builtin_prefetch(start + i);
  __builtin_prefetch(start + floats - 1);
}

static int64_t row_of(const Ring &ring, int64_t position) {
  int64_t row = position + ring.oldest;
  return row < ring.capacity ? row : row - ring.capacity;
}

// Place k steps later in the same env; the first place again if it is beyond the newest step.
static int64_t later(const Ring &ring, int64_t position, int64_t k, bool *inside) {
  int64_t there = position + k * ring.num_envs;
  *inside = there < ring.held;
  return row_of(ring, *inside ? there : position);
}

static bool goes_on(const Ring &ring, const float *row) {
  return row[ring.terminated] + row[ring.truncated] == 0.0f && row[ring.valid] > 0.0f;
}

INLINED void fetch_sample(const Ring &ring, const Sample &sample, int64_t i) {
  const int64_t position = sample.position[i], flags = ring.valid - ring.terminated + 1;
  const float *first = ring.rows + row_of(ring, position) * ring.width;
  fetch(first, ring.reward + ring.terms);
  fetch(first + ring.terminated, flags);
  for (int64_t k = 1; k < sample.n_step; ++k) {
    bool inside;
    const float *row = ring.rows + later(ring, position, k, &inside) * ring.width;
    if (sample.chunk) fetch(row + ring.action, ring.action_size);
    fetch(row + ring.reward, ring.terms);
    fetch(row + ring.terminated, flags);
  }
}

INLINED void fetch_last(const Sample &sample, const float *last) {
  for (int64_t p = 0; p < sample.part_count; ++p)
    if (sample.parts[p].of_last) fetch(last + sample.parts[p].column, sample.parts[p].width);
}

// Follows a sample through its rows; returns the last one of the sum.
static const float *walk(const Ring &ring, const Sample &sample, int64_t i) {
  const int64_t position = sample.position[i];
  const float *last = nullptr;
  float discount = sample.gamma;
  int64_t steps = 0;
  bool going = true;
  for (int64_t k = 0; k < sample.n_step; ++k) {
    bool inside;
    const float *row = ring.rows + later(ring, position, k, &inside) * ring.width;
    const bool valid = row[ring.valid] > 0.0f;
    // Of an invalid first row there is a sum too: it has weight 0.
    if (k > 0) going = going && inside && valid;
    if (going) {
      if (k > 0) discount *= sample.gamma;
      last = row;
      ++steps;
    }
    float *terms = sample.terms + k * sample.terms_step + i * sample.terms_stride;
    std::memcpy(terms, row + ring.reward, ring.terms * sizeof(float));
    if (sample.chunk) {
      const int64_t place = i * sample.n_step + k;
      std::memcpy(sample.chunk + place * ring.action_size, row + ring.action,
                  ring.action_size * sizeof(float));
      sample.chunk_valid[place] = going && valid;
    }
    going = going && goes_on(ring, row);
  }
  sample.steps[i] = steps;
  sample.discount[i] = discount * (1.0f - last[ring.terminated]);
  return last;
}

static void copy_parts(const Ring &ring, const Sample &sample, int64_t i, const float *last) {
  const int64_t row = row_of(ring, sample.position[i]);
  const float *first = ring.rows + row * ring.width;
  sample.index[i] = row;
  sample.weight[i] = first[ring.valid];
  for (int64_t p = 0; p < sample.part_count; ++p) {
    const Part &part = sample.parts[p];
    std::memcpy(part.out + i * part.width, (part.of_last ? last : first) + part.column,
                part.width * sizeof(float));
  }
}

static void gather_single_rows(const Ring &ring, const Sample &sample) {
  for (int64_t i = 0; i < sample.count; ++i) {
    if (i + kSingleAhead < sample.count)
      __builtin_prefetch(ring.rows + row_of(ring, sample.position[i + kSingleAhead]) * ring.width);
    const float *row = ring.rows + row_of(ring, sample.position[i]) * ring.width;
    copy_parts(ring, sample, i, row);
    std::memcpy(sample.terms + i * sample.terms_stride, row + ring.reward,
                ring.terms * sizeof(float));
    sample.discount[i] = sample.gamma * (1.0f - row[ring.terminated]);
  }
}

// A ring is larger than the caches, so that a sample costs its waits for memory. Three stages
// follow each other over the samples, each behind the fetches of the one before it.
extern "C" void gather_rows(const Ring *ring, const Sample *sample) {
  if (sample->n_step == 1 && !sample->chunk) {
    gather_single_rows(*ring, *sample);
    return;
  }
  const float *last[kAhead];
  for (int64_t i = 0; i < sample->count + 2 * kAhead; ++i) {
    const int64_t walked = i - kAhead, copied = walked - kAhead;
    const float *&slot = last[i % kAhead];  // both of `copied` and, after it, of `walked`
    if (i < sample->count) fetch_sample(*ring, *sample, i);
    if (copied >= 0) copy_parts(*ring, *sample, copied, slot);
    if (walked >= 0 && walked < sample->count) {
      slot = walk(*ring, *sample, walked);
      fetch_last(*sample, slot);
    }
  }
}

// Discounted sums of rewards (n_step, count), as far as each sample goes, into `sum` (count,).
extern "C" void sum_rewards(const Sample *sample, const float *reward, float *sum) {
  for (int64_t i = 0; i < sample->count; ++i) {
    float total = reward[i], discount = sample->gamma;
    for (int64_t k = 1; k < sample->n_step; ++k) {
      const bool going = k < sample->steps[i];
      // Nothing is left out behind the end, as in the sum of whole tensors: 0 * NaN shows.
      total += (going ? discount : 0.0f) * reward[k * sample->count + i];
      if (going) discount *= sample->gamma;
    }
    sum[i] = total;
  }
}
