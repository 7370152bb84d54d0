// Matrix products in fp32, and in bf16 with sums in fp32: our own, or those of a library that
// Python hands in. Matrices are row-major and in fp32; those of a product in bf16 are rounded on
// their way into it.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>

#ifdef __SSE__
#include <immintrin.h>
#endif
#ifdef __AMX_BF16__
#include <sys/syscall.h>
#include <unistd.h>
#endif

// A product of our own: panels of the right factor are packed, and tiles of the result stay in
// registers while a panel passes (Goto & van de Geijn 2008). For matrices of 64 to 256 columns it
// is as fast as the libraries, adds bias and ReLU without another pass, and exists on every
// machine.
// Where a library is faster, Python hands it in.
//
// A factor consists of words of 32 bits. In fp32 a word is a number; in bf16 it is two numbers that
// follow each other along the sum (the first in the low half), of which one instruction adds both
// products. All else is the same: a sum over k numbers in bf16 is one over k / 2 words.

#if defined(__AVX512F__)
constexpr int kLanes = 16, kTileRows = 6, kTileVectors = 4;
#elif defined(__AVX__)
constexpr int kLanes = 8, kTileRows = 6, kTileVectors = 2;
#else
constexpr int kLanes = 4, kTileRows = 6, kTileVectors = 4;
#endif
constexpr int kPanel = kLanes * kTileVectors;  // columns of a panel

// Rows of a tile that is so many vectors wide: a narrow one is taller, to have as many sums.
constexpr int tile_rows(int vectors) { return std::min(12, kTileRows * kTileVectors / vectors); }

typedef float Vector __attribute__((vector_size(4 * kLanes)));
typedef float Unaligned __attribute__((vector_size(4 * kLanes), aligned(4)));
typedef int32_t Lanes __attribute__((vector_size(4 * kLanes)));

static inline Vector load(const float *from) { return *reinterpret_cast<const Unaligned *>(from); }
static inline void store(float *to, Vector value) { *reinterpret_cast<Unaligned *>(to) = value; }
static inline Vector broadcast(float x) { return x - Vector{}; }

// Meaning of a word.
struct Fp32 {
  static inline Vector add_product(Vector sum, Vector a, Vector b) { return sum + a * b; }
};
#ifdef __AVX512BF16__
struct Bf16Pair {
  static inline Vector add_product(Vector sum, Vector a, Vector b) {
    return (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
  }
};
#endif

// What is done with a product before it is stored.
struct Finish {
  bool add = false;  // to what is there
  const float *bias = nullptr;  // (columns,), added
  bool relu = false;
};

// The first `count` lanes of a vector; the others are zero, and not stored.
#ifdef __AVX512F__
static inline __mmask16 first_lanes(int count) {
  return count >= kLanes ? 0xffff : count <= 0 ? 0 : (1 << count) - 1;
}
static inline Vector load_first(const float *from, int count) {
  return (Vector)_mm512_maskz_loadu_ps(first_lanes(count), from);
}
static inline void store_first(float *to, Vector value, int count) {
  _mm512_mask_storeu_ps(to, first_lanes(count), (__m512)value);
}
#else
static inline Vector load_first(const float *from, int count) {
  float part[kLanes] = {};
  std::memcpy(part, from, sizeof(float) * std::min(count, kLanes));
  return load(part);
}
static inline void store_first(float *to, Vector value, int count) {
  float part[kLanes];
  store(part, value);
  std::memcpy(to, part, sizeof(float) * std::min(count, kLanes));
}
#endif

// `Rows` rows and up to `Vectors` vectors of columns of the result.
template <class Word, int Rows, int Vectors>
[[gnu::noinline]] static void multiply_tile(int k, const float *a, int64_t a_row, int64_t a_step,
                                            const float *panel, float *c, int64_t ldc, int columns,
                                            const Finish &finish) {
  Vector sum[Rows][Vectors];
#pragma GCC unroll 12
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) sum[r][v] = Vector{};
  for (int i = 0; i < k; i++) {
    Vector b[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) b[v] = load(panel + v * kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < Rows; r++) {
      const Vector x = broadcast(a[r * a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; v++) sum[r][v] = Word::add_product(sum[r][v], x, b[v]);
    }
    panel += Vectors * kLanes;
    a += a_step;
  }
#pragma GCC unroll 12
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v++) {
      const int first = v * kLanes, left = columns - first;
      float *to = c + r * ldc + first;
      Vector value = sum[r][v];
      const bool whole = left >= kLanes;
      if (finish.add) value += whole ? load(to) : load_first(to, left);
      if (finish.bias)
        value += whole ? load(finish.bias + first) : load_first(finish.bias + first, left);
      if (finish.relu) value = value < Vector{} ? Vector{} : value;  // a NaN stays one
      if (whole)
        store(to, value);
      else
        store_first(to, value, left);
    }
}

template <int Value>
using Count = std::integral_constant<int, Value>;

template <class Word, int Vectors>
static void multiply_panel(int m, int k, const float *a, int64_t a_row, int64_t a_step,
                           const float *panel, float *c, int64_t ldc, int columns,
                           const Finish &finish) {
  const auto tile = [&](auto rows, const float *a_tile, float *c_tile) {
    multiply_tile<Word, rows.value, Vectors>(k, a_tile, a_row, a_step, panel, c_tile, ldc, columns,
                                             finish);
  };
  constexpr int kRows = tile_rows(Vectors);
  int r = 0;
  for (; r + kRows <= m; r += kRows) tile(Count<kRows>(), a + r * a_row, c + r * ldc);
  for (; r + kTileRows <= m; r += kTileRows) tile(Count<kTileRows>(), a + r * a_row, c + r * ldc);
  a += r * a_row;
  c += r * ldc;
  switch (m - r) {
    case 5: tile(Count<5>(), a, c); break;
    case 4: tile(Count<4>(), a, c); break;
    case 3: tile(Count<3>(), a, c); break;
    case 2: tile(Count<2>(), a, c); break;
    case 1: tile(Count<1>(), a, c); break;
  }
}

#ifdef __clang__  // which cannot shuffle by a vector of places
static inline void transpose(Vector *x) {
  for (int i = 0; i < kLanes; i++)
    for (int j = 0; j < i; j++) {
      const float below = x[i][j];
      x[i][j] = x[j][i];
      x[j][i] = below;
    }
}
#else
// Transposes a square of vectors: rounds of interleaving rows that lie half the square apart.
static inline void transpose(Vector *x) {
  Lanes low, high;
  for (int i = 0; i < kLanes; i++) {
    low[i] = i / 2 + (i % 2) * kLanes;
    high[i] = low[i] + kLanes / 2;
  }
  for (int round = 1; round < kLanes; round *= 2) {
    Vector y[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes / 2; i++) {
      y[2 * i] = __builtin_shuffle(x[i], x[i + kLanes / 2], low);
      y[2 * i + 1] = __builtin_shuffle(x[i], x[i + kLanes / 2], high);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; i++) x[i] = y[i];
  }
}
#endif

// Columns of b (k, n) from `first` on as rows of `width`, filled up with zeros.
[[gnu::noinline]] static void pack_panel(bool transposed, int k, const float *b, int64_t ldb,
                                         int first, int columns, int width, float *panel) {
  if (!transposed) {
    for (int i = 0; i < k; i++) {
      float *to = panel + static_cast<int64_t>(i) * width;
      std::memcpy(to, b + i * ldb + first, sizeof(float) * columns);
      for (int j = columns; j < width; j++) to[j] = 0;
    }
    return;
  }
  for (int at = 0; at < width; at += kLanes)
    for (int i = 0; i < k; i += kLanes) {
      const int count = std::min(kLanes, k - i);
      Vector square[kLanes];
      for (int j = 0; j < kLanes; j++) {
        const float *from = b + (first + at + j) * ldb + i;
        float part[kLanes] = {};
        if (at + j >= columns) {
          square[j] = Vector{};
        } else if (count == kLanes) {
          square[j] = load(from);
        } else {
          std::memcpy(part, from, sizeof(float) * count);
          square[j] = load(part);
        }
      }
      transpose(square);
      for (int j = 0; j < count; j++)
        store(panel + static_cast<int64_t>(i + j) * width + at, square[j]);
    }
}

// Memory that a thread keeps, for (rows, columns) words, from the beginning of a cache line on.
static float *room(std::vector<float> &kept, int64_t rows, int64_t columns) {
  constexpr size_t kLine = 64;
  const size_t size = static_cast<size_t>(rows) * columns + kLine / sizeof(float);
  if (kept.size() < size) kept.resize(size);
  const auto address = reinterpret_cast<uintptr_t>(kept.data());
  return reinterpret_cast<float *>((address + kLine - 1) / kLine * kLine);
}

template <class Word>
[[gnu::noinline]] static void multiply_words(bool a_transposed, bool b_transposed, int m, int n,
                                             int k, const float *a, int lda, const float *b,
                                             int ldb, float *c, int ldc, Finish finish) {
  static thread_local std::vector<float> packed;
  float *packing = room(packed, k, kPanel);
  const int64_t a_row = a_transposed ? 1 : lda, a_step = a_transposed ? lda : 1;
  for (int first = 0; first < n; first += kPanel) {
    const int columns = std::min(n - first, kPanel), vectors = (columns + kLanes - 1) / kLanes;
    const float *panel = b;  // a matrix that is one panel lies as it should
    if (b_transposed || ldb != columns || columns != vectors * kLanes) {
      pack_panel(b_transposed, k, b, ldb, first, columns, vectors * kLanes, packing);
      panel = packing;
    }
    const auto multiply_by = [&](auto count) {
      multiply_panel<Word, count.value>(m, k, a, a_row, a_step, panel, c + first, ldc, columns,
                                        finish);
    };
    switch (vectors) {
      case 1: multiply_by(Count<1>()); break;
      case 2: multiply_by(Count<2>()); break;
      case 3: multiply_by(Count<3>()); break;
      default: multiply_by(Count<4>());
    }
    if (finish.bias) finish.bias += kPanel;
  }
}

// ---------------------------------------------------------------------------------------------
// Products in bf16. The sum runs along the rows of some factors and along the columns of others,
// and words pair what follows each other along it. The last number of an odd sum is paired with
// zero. A NaN stays one.
// ---------------------------------------------------------------------------------------------

constexpr int kRowMajor = 101, kAsStored = 111, kTransposed = 112;  // of CBLAS

#ifdef __AVX512BF16__
// Rounds the first `low_count` of 16 numbers and the first `high_count` of 16 others; zeros behind.
static inline __m512i round_both(const float *low, int low_count, const float *high,
                                 int high_count) {
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(first_lanes(high_count), high),
                                      _mm512_maskz_loadu_ps(first_lanes(low_count), low));
}

// x (rows, columns) -> words (rows, (columns + 1) / 2), which are the rows of x in bf16.
[[gnu::noinline]] static void pair_columns(int rows, int columns, const float *x, int ldx,
                                           float *words) {
  const int pairs = (columns + 1) / 2;
  for (int r = 0; r < rows; r++) {
    const float *from = x + static_cast<int64_t>(r) * ldx;
    float *to = words + static_cast<int64_t>(r) * pairs;
    for (int j = 0; j < columns; j += 2 * kLanes)
      _mm512_mask_storeu_epi32(
          to + j / 2, first_lanes(pairs - j / 2),
          round_both(from + j, columns - j, from + j + kLanes, columns - j - kLanes));
  }
}

// x (rows, columns) -> words ((rows + 1) / 2, columns).
[[gnu::noinline]] static void pair_rows(int rows, int columns, const float *x, int ldx,
                                        float *words) {
  alignas(64) int16_t order[2 * kLanes];  // takes from both halves of a vector in turn
  for (int i = 0; i < kLanes; i++) {
    order[2 * i] = i;
    order[2 * i + 1] = i + kLanes;
  }
  const __m512i in_turn = _mm512_load_si512(order);
  for (int r = 0; r < rows; r += 2) {
    const bool has_second = r + 1 < rows;
    const float *low = x + static_cast<int64_t>(r) * ldx, *high = has_second ? low + ldx : low;
    float *to = words + static_cast<int64_t>(r / 2) * columns;
    for (int j = 0; j < columns; j += kLanes) {
      const int left = columns - j;
      const __m512i both = round_both(low + j, left, high + j, has_second ? left : 0);
      _mm512_mask_storeu_epi32(to + j, first_lanes(left), _mm512_permutexvar_epi16(in_turn, both));
    }
  }
}

#ifdef __AMX_BF16__
// ---------------------------------------------------------------------------------------------
// Products by AMX. A tile is 16 rows of 16 words. One instruction adds the product of a tile of the
// left factor (rows of c down, sum along) and one of the right (sum down, columns of c along) to a
// tile of sums. Factors are packed as tiles in a row, those that share the sum next to each other.
// ---------------------------------------------------------------------------------------------

constexpr int kTile = 16, kTileWords = kTile * kTile;

struct alignas(64) TileShapes {  // as the processor reads it
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {kTile, kTile, kTile, kTile, kTile, kTile, kTile, kTile};
};
static const TileShapes tile_shapes;

// Linux hands the tiles out to processes that ask.
static bool may_use_tiles() {
  constexpr int kAskFor = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool granted = syscall(SYS_arch_prctl, kAskFor, kTileData) == 0;
  return granted;
}

// Number of tiles for so many rows or columns of c: even, for two are taken at once.
static int tiles_of(int lines) { return (lines + 2 * kTile - 1) / (2 * kTile) * 2; }

// x holds `lines` rows or columns of c and `count` numbers of the sum, which run along its rows if
// `Along`, else along its columns. The sum runs down the tiles if `Down`.
template <bool Along, bool Down>
[[gnu::noinline]] static void pack_tiles(int lines, int count, const float *x, int ldx,
                                         float *tiles) {
  alignas(64) int16_t order[2 * kLanes];
  for (int i = 0; i < kLanes; i++) {
    order[2 * i] = i;
    order[2 * i + 1] = i + kLanes;
  }
  const __m512i in_turn = _mm512_load_si512(order);
  const int end = tiles_of(lines) * kTile;
  for (int line = 0; line < end; line += kTile)
    for (int at = 0; at < count; at += 2 * kTile, tiles += kTileWords) {
      Vector tile[kTile];
#pragma GCC unroll 16
      for (int i = 0; i < kTile; i++) {
        __m512i words = _mm512_setzero_si512();
        if (Along && line + i < lines) {
          const float *from = x + static_cast<int64_t>(line + i) * ldx + at;
          words = round_both(from, count - at, from + kLanes, count - at - kLanes);
        }
        if (!Along && at + 2 * i < count) {
          const bool has_second = at + 2 * i + 1 < count;
          const float *low = x + static_cast<int64_t>(at + 2 * i) * ldx + line;
          words = _mm512_permutexvar_epi16(
              in_turn, round_both(low, lines - line, has_second ? low + ldx : low,
                                  has_second ? lines - line : 0));
        }
        tile[i] = (Vector)words;
      }
      if (Along == Down) transpose(tile);
#pragma GCC unroll 16
      for (int i = 0; i < kTile; i++) store(tiles + i * kTile, tile[i]);
    }
}

// Stores `rows` rows of a tile of sums, their first `columns` columns.
static inline void store_tile(const float *sums, int rows, int columns, float *c, int ldc,
                              const float *bias, const Finish &finish) {
  if (columns <= 0) return;
  const Vector added = bias ? load_first(bias, columns) : Vector{};
  const Vector least = broadcast(finish.relu ? 0 : -INFINITY);
  for (int r = 0; r < rows; r++, sums += kTile, c += ldc) {
    Vector value = load(sums);
    if (finish.add) value += load_first(c, columns);
    value += added;
    store_first(c, value < least ? Vector{} : value, columns);  // a NaN stays one
  }
}

[[gnu::noinline]] static void multiply_tiles(int m, int n, int depth, const float *a,
                                             const float *b, float *c, int ldc,
                                             const Finish &finish) {
  constexpr int kStride = kTile * sizeof(float);
  const int64_t next = static_cast<int64_t>(depth) * kTileWords;
  alignas(64) float sums[4][kTileWords];
  _tile_loadconfig(&tile_shapes);
  for (int column = 0; column < n; column += 2 * kTile, b += 2 * next) {
    const float *left = a;
    for (int row = 0; row < m; row += 2 * kTile, left += 2 * next) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t i = 0; i < next; i += kTileWords) {
        _tile_loadd(4, left + i, kStride);
        _tile_loadd(5, left + next + i, kStride);
        _tile_loadd(6, b + i, kStride);
        _tile_loadd(7, b + next + i, kStride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_stored(0, sums[0], kStride);
      _tile_stored(1, sums[1], kStride);
      _tile_stored(2, sums[2], kStride);
      _tile_stored(3, sums[3], kStride);
      for (int i = 0; i < 4; i++) {
        const int first = row + i / 2 * kTile, at = column + i % 2 * kTile;
        store_tile(sums[i], std::min(m - first, kTile), n - at,
                   c + static_cast<int64_t>(first) * ldc + at, ldc,
                   finish.bias ? finish.bias + at : nullptr, finish);
      }
    }
  }
  _tile_release();
}

static void tile_product(bool a_transposed, bool b_transposed, int m, int n, int k, const float *a,
                         int lda, const float *b, int ldb, float *c, int ldc,
                         const Finish &finish) {
  static thread_local std::vector<float> of_a, of_b;
  const int depth = (k + 2 * kTile - 1) / (2 * kTile);
  float *a_tiles = room(of_a, tiles_of(m) * depth, kTileWords);
  float *b_tiles = room(of_b, tiles_of(n) * depth, kTileWords);
  (a_transposed ? pack_tiles<false, false> : pack_tiles<true, false>)(m, k, a, lda, a_tiles);
  (b_transposed ? pack_tiles<true, true> : pack_tiles<false, true>)(n, k, b, ldb, b_tiles);
  multiply_tiles(m, n, depth, a_tiles, b_tiles, c, ldc, finish);
}
#endif

static void bf16_product(bool a_transposed, bool b_transposed, int m, int n, int k, const float *a,
                         int lda, const float *b, int ldb, float *c, int ldc,
                         Finish finish) {
#ifdef __AMX_BF16__
  if (may_use_tiles()) {
    tile_product(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, finish);
    return;
  }
#endif
  static thread_local std::vector<float> of_a, of_b;
  const int pairs = (k + 1) / 2;
  float *a_words = room(of_a, m, pairs), *b_words = room(of_b, n, pairs);
  if (a_transposed)
    pair_rows(k, m, a, lda, a_words);
  else
    pair_columns(m, k, a, lda, a_words);
  if (b_transposed)
    pair_columns(n, k, b, ldb, b_words);
  else
    pair_rows(k, n, b, ldb, b_words);
  multiply_words<Bf16Pair>(a_transposed, b_transposed, m, n, pairs, a_words,
                           a_transposed ? m : pairs, b_words, b_transposed ? pairs : n, c, ldc,
                           finish);
}

using CblasBf16 = void (*)(int, int, int, int, int, int, float, const void *, int, const void *,
                           int, float, float *, int);

// The same by a library, which wants rows of numbers in bf16.
static void bf16_library_product(void *function, bool a_transposed, bool b_transposed, int m, int n,
                                 int k, const float *a, int lda, const float *b, int ldb, float *c,
                                 int ldc, bool add) {
  static thread_local std::vector<float> of_a, of_b;
  const int a_rows = a_transposed ? k : m, a_columns = a_transposed ? m : k;
  const int b_rows = b_transposed ? n : k, b_columns = b_transposed ? k : n;
  const int a_pairs = (a_columns + 1) / 2, b_pairs = (b_columns + 1) / 2;
  float *a_words = room(of_a, a_rows, a_pairs), *b_words = room(of_b, b_rows, b_pairs);
  pair_columns(a_rows, a_columns, a, lda, a_words);
  pair_columns(b_rows, b_columns, b, ldb, b_words);
  reinterpret_cast<CblasBf16>(function)(kRowMajor, a_transposed ? kTransposed : kAsStored,
                                        b_transposed ? kTransposed : kAsStored, m, n, k, 1, a_words,
                                        2 * a_pairs, b_words, 2 * b_pairs, add ? 1 : 0, c, ldc);
}
#else  // Python does not ask for it: see `has_bf16`.
static void bf16_product(bool, bool, int, int, int, const float *, int, const float *, int, float *,
                         int, Finish) {
  std::abort();
}
static void bf16_library_product(void *, bool, bool, int, int, int, const float *, int,
                                 const float *, int, float *, int, bool) {
  std::abort();
}
#endif

// ---------------------------------------------------------------------------------------------
// Choice of a product
// ---------------------------------------------------------------------------------------------

using Fortran = void (*)(const char *, const char *, const int *, const int *, const int *,
                         const float *, const float *, const int *, const float *, const int *,
                         const float *, float *, const int *);
using Cblas64 = void (*)(int, int, int, int64_t, int64_t, int64_t, float, const float *, int64_t,
                         const float *, int64_t, float, float *, int64_t);
using Cblas32 = void (*)(int, int, int, int, int, int, float, const float *, int, const float *,
                         int, float, float *, int);

enum Precision { kFp32, kBf16 };
enum Blas { kOurs, kFortran, kCblas64, kCblas32, kCblasBf16 };

struct Products {
  int kind;  // Blas
  void *function;  // of a library, or null
};
static Products products_of[] = {{kOurs, nullptr}, {kOurs, nullptr}};  // of each Precision

extern "C" int has_bf16() {
#ifdef __AVX512BF16__
  return 1;
#else
  return 0;
#endif
}

extern "C" void set_blas(int precision, int kind, void *function) {
  products_of[precision] = {kind, function};
}

static void finish_rows(int rows, int width, float *z, const Finish &finish) {
  if (!finish.bias) return;
  const float *__restrict bias = finish.bias;
  for (int r = 0; r < rows; r++) {
    float *__restrict row = z + static_cast<int64_t>(r) * width;
#pragma omp simd
    for (int j = 0; j < width; j++) {
      const float y = row[j] + bias[j];
      row[j] = finish.relu && y < 0 ? 0 : y;
    }
  }
}

// c (m, n) = a (m, k) b (k, n), finished; a flag says that a factor is stored transposed.
static void product(Precision precision, bool a_transposed, bool b_transposed, int m, int n, int k,
                    const float *a, int lda, const float *b, int ldb, float *c, int ldc,
                    Finish finish = {}) {
  const auto [kind, function] = products_of[precision];
  if (kind == kOurs) {
    const auto own = precision == kBf16 ? bf16_product : multiply_words<Fp32>;
    own(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, finish);
    return;
  }
  const float one = 1, beta = finish.add ? 1 : 0;
  const int order_a = a_transposed ? kTransposed : kAsStored;
  const int order_b = b_transposed ? kTransposed : kAsStored;
  if (kind == kFortran)  // column-major: c' = b' a'
    reinterpret_cast<Fortran>(function)(b_transposed ? "T" : "N", a_transposed ? "T" : "N", &n, &m,
                                        &k, &one, b, &ldb, a, &lda, &beta, c, &ldc);
  else if (kind == kCblas64)
    reinterpret_cast<Cblas64>(function)(kRowMajor, order_a, order_b, m, n, k, one, a, lda, b, ldb,
                                        beta, c, ldc);
  else if (kind == kCblas32)
    reinterpret_cast<Cblas32>(function)(kRowMajor, order_a, order_b, m, n, k, one, a, lda, b, ldb,
                                        beta, c, ldc);
  else
    bf16_library_product(function, a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc,
                         finish.add);
  finish_rows(m, n, c, finish);
}

extern "C" void multiply(int precision, int a_transposed, int b_transposed, int m, int n, int k,
                         const float *a, int lda, const float *b, int ldb, float *c, int ldc) {
  product(static_cast<Precision>(precision), a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c,
          ldc);
}
