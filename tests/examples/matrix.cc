#include "tests/examples/matrix.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cohort::testing {

Matrix Product(const Matrix& a, const Matrix& b) {
  Matrix result(a.rows, b.columns);
  for (int i = 0; i < a.rows; ++i) {
    for (int k = 0; k < a.columns; ++k) {
      for (int j = 0; j < b.columns; ++j) result.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return result;
}
Matrix Transposed(const Matrix& a) {
  Matrix result(a.columns, a.rows);
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < a.columns; ++j) result.at(j, i) = a.at(i, j);
  }
  return result;
}

Matrix Sum(Matrix a, const Matrix& b) {
  for (size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

Matrix Matrix::Random(int rows, int columns, std::mt19937& random) {
  Matrix matrix(rows, columns);
  for (double& value : matrix.values) value = static_cast<double>(random() % 2001) / 1000 - 1;
  return matrix;
}

Matrix RowsOf(const Matrix& matrix, int begin, int size) {
  Matrix rows(size, matrix.columns);
  const auto from = matrix.values.begin() + begin * matrix.columns;
  rows.values.assign(from, from + size * matrix.columns);
  return rows;
}

Matrix ColumnsOf(const Matrix& matrix, int begin, int size) {
  Matrix columns(matrix.rows, size);
  for (int i = 0; i < matrix.rows; ++i) {
    for (int j = 0; j < size; ++j) columns.at(i, j) = matrix.at(i, begin + j);
  }
  return columns;
}

double LargestDifference(const Matrix& a, const Matrix& b) {
  if (a.rows != b.rows || a.columns != b.columns) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    largest = std::max(largest, std::abs(a.values[i] - b.values[i]));
  }
  return largest;
}

}  // namespace cohort::testing
