// What a screen reader and a keyboard need of the documentation site, and the theme leaves out.
for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.ariaLevel = "2";
document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "All pages");
document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
for (const box of document.querySelectorAll("pre, .table-wrapper")) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
