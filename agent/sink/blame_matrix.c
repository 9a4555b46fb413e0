/* SPDX-License-Identifier: Apache-2.0 */
/* Victims x culprits, in ms: as many of the worst as the page has room for, the rest added up. */
#include "sink/blame_priv.h"
#include "sink/blame_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 12, MAX_CULPRITS = 12, NAME_COLUMNS = 12, CELL_COLUMNS = 11 };

struct matrix {
	struct blame_who rows[MAX_ROWS], columns[MAX_CULPRITS + 1];
	size_t n_rows, n_columns;	/* behind them: the others */
	bool more_rows, more_columns;
	uint64_t ns[MAX_ROWS + 1][MAX_CULPRITS + 1];
};

static size_t row_of(const struct matrix *m, uint32_t victim)
{
	for (size_t i = 0; i < m->n_rows; i++)
		if (m->rows[i].who.id == victim)
			return i;
	return m->n_rows;
}

static size_t column_of(const struct matrix *m, const struct culprit *c)
{
	for (size_t i = 0; i < m->n_columns; i++)
		if (culprit_same(&m->columns[i].who, c))
			return i;
	return m->n_columns;
}

static int fill(struct matrix *m, const struct blame_sum *s, size_t max_columns)
{
	long n = blame_sum__victims(s, m->rows, MAX_ROWS);

	if (n < 0)
		return (int)n;
	m->n_rows = (size_t)n;
	n = blame_sum__culprits(s, 0, IN_GAPS | IN_TTFTS | BY_NOBODY, m->columns, max_columns + 1);
	if (n < 0)
		return (int)n;
	/* one that stands alone among "others" has a column of its own instead */
	m->n_columns = (size_t)n > max_columns ? max_columns - 1 : (size_t)n;
	for (size_t i = 0; i < s->n_pairs; i++) {
		const struct blame_pair *p = &s->pairs[i];
		size_t row = row_of(m, p->victim), column = column_of(m, &p->culprit);

		m->more_rows |= row == m->n_rows;
		m->more_columns |= column == m->n_columns;
		m->ns[row][column] += p->ns + p->ttft_ns;
	}
	return 0;
}

static void write_cell(struct page *p, uint64_t ns)
{
	char buf[CELL_LEN];

	fprintf(p->out, "%*s", CELL_COLUMNS, ns ? cell_ms(buf, (int64_t)ns) : ".");
}

static void write_row(struct page *p, const struct matrix *m, size_t row, const char *name)
{
	uint64_t sum = 0;

	fprintf(p->out, "%-*s", NAME_COLUMNS, name);
	for (size_t i = 0; i < m->n_columns + m->more_columns; i++) {
		write_cell(p, m->ns[row][i]);
		sum += m->ns[row][i];
	}
	write_cell(p, sum);
	fputc('\n', p->out);
}

static void write_all(struct page *p, const struct matrix *m)
{
	uint64_t sum = 0;

	fprintf(p->out, "%-*s", NAME_COLUMNS, "all");
	for (size_t c = 0; c < m->n_columns + m->more_columns; c++) {
		uint64_t ns = 0;

		for (size_t r = 0; r < m->n_rows + m->more_rows; r++)
			ns += m->ns[r][c];
		write_cell(p, ns);
		sum += ns;
	}
	write_cell(p, sum);
	fputc('\n', p->out);
}

static void write_matrix(struct page *p, const struct model_view *v, const struct matrix *m)
{
	char name[64];

	page__heading(p, "who slowed whom, ms: victims down, culprits across");
	fprintf(p->out, "%-*s", NAME_COLUMNS, "");
	for (size_t i = 0; i < m->n_columns; i++)
		fprintf(p->out, "%*.*s", CELL_COLUMNS, CELL_COLUMNS - 1,
			culprit_brief(v, &m->columns[i].who, name, sizeof(name)));
	if (m->more_columns)
		fprintf(p->out, "%*s", CELL_COLUMNS, "others");
	fprintf(p->out, "%*s\n", CELL_COLUMNS, "all");
	for (size_t i = 0; i < m->n_rows; i++)
		write_row(p, m, i, culprit_brief(v, &m->rows[i].who, name, sizeof(name)));
	if (m->more_rows)
		write_row(p, m, m->n_rows, "others");
	if (m->n_rows + m->more_rows > 1)
		write_all(p, m);
}

int blame_matrix(struct page *p, const struct blame_text *t)
{
	size_t room = (size_t)(p->width - NAME_COLUMNS) / CELL_COLUMNS - 1;
	struct matrix m = { .n_rows = 0 };
	int err = fill(&m, t->sum, room < MAX_CULPRITS ? room : MAX_CULPRITS);

	if (!err && m.n_rows * (m.n_columns + m.more_columns) > 1)
		write_matrix(p, t->v, &m);
	return err;
}
