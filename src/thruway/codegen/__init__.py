"""From a Plan to Sources: C text per distinct kernel, and the launch list that calls them. Entry: `sources.generate`."""
