"""The notice of bundled code."""


def test_each_page_names_the_authors_and_licence_of_what_it_holds(called, tmp_path):
    from fixtures.scenario import scenarios

    path = tmp_path / "run.sqlite"
    next(one for one in scenarios() if one.name == "communication-partly-hidden").write(path)
    assert called("analyze", path, "--html", tmp_path / "a.html", "--json", tmp_path / "a.json").code == 0
    assert called("diff", tmp_path / "a.json", tmp_path / "a.json", "--html", tmp_path / "d.html").code == 0
    assert called("whatif", path, "--hide", "communication", "--html", tmp_path / "w.html").code in {0, 2}
    pages = [page.read_text(encoding="utf-8") for page in tmp_path.glob("*.html")]
    assert len(pages) >= 2
    for page in pages:
        before, _, after = page.partition('id="plotly"')
        notice = before[before.rindex("<!--") :]
        for part in ("plotly.js v", "Plotly, Inc.", "Permission is hereby granted, free of charge", "AS IS"):
            assert part in notice
        assert after
